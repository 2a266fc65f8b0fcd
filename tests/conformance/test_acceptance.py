"""`hillclimb accept` on a whole stack: evidence lifts the flag, and forgetting it puts it back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from hillclimb.process.acceptance.targets import FACTS
from hillclimb.stack.options import CODE_ROOT
from tests.conformance.backends import BackendUnderTest
from tests.conformance.cases import check_nothing_left, spec_for
from tests.conformance.conftest import KEY, MODEL_NAME
from tests.conformance.service import TRAINER_PYTHON, Service

FLEET_KEY = "key-of-the-conformance"
pytestmark = [pytest.mark.stack, pytest.mark.long]
SMALL = (
    *("--set", "environment.overrides.booking.max_turns=4"),
    *("--set", "data.eval_tasks_per_env=4"),
    *("--set", "engine.type=torch"),
)
PREBUILT = json.dumps({"type": "prebuilt", "python": str(TRAINER_PYTHON)})


def accept(service: Service, *words: str, **variables: str) -> tuple[int, Any]:
    """Run `hillclimb accept WORDS --json` as a user of the service; code and document."""
    authorization = service.http.headers["Authorization"].removeprefix("Bearer ")
    address = {"HILLCLIMB_API_URL": str(service.http.base_url), "HILLCLIMB_API_KEY": authorization}
    done = subprocess.run(
        [sys.executable, "-m", "hillclimb.cli", "accept", *words, "--json"],
        cwd=CODE_ROOT,
        env={**os.environ, **address, "HILLCLIMB_TRAINER_PYTHON": str(TRAINER_PYTHON), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def names(document: Any) -> list[str]:
    return [each["name"] for each in document["observations"] if each["passed"]]


def test_two_machines_need_no_flag_once_they_were_accepted(
    backends: dict[str, BackendUnderTest],
) -> None:
    gang = backends["gang"]
    service = gang.service
    plain = spec_for(gang, "without the flag") | {"experimental": False}
    refused = service.http.post("/v1/runs", json=plain)
    assert refused.status_code == 422
    assert "`hillclimb accept cluster`" in refused.text
    code, document = accept(
        service,
        *("cluster", "--infra", "slurm/local", "--nodes", "2", *SMALL),
        *("--set", f"backend.skypilot.trainer={PREBUILT}", "--set", "placement.type=ray"),
    )
    assert code == 0, document
    assert names(document) == list(FACTS["cluster"].checks)
    assert document["acceptance"]["paths"] == ["cluster"]
    stored = document["acceptance"]
    assert {"ray", "torch", "skypilot"} <= set(stored["versions"])
    assert stored["void"] is None
    check_nothing_left(gang, stored["run"])
    run_id = service.submit(plain)
    run = service.until_status(run_id, "succeeded")
    assert run["spec"]["experimental"] is False
    assert [each["path"] for each in run["spec"]["accepted"]] == ["cluster"]
    check_nothing_left(gang, run_id)
    code, forgotten = accept(service, "cluster", "--forget")
    assert (code, forgotten["forgotten"]) == (0, 1)
    assert service.http.post("/v1/runs", json=plain).status_code == 422


def test_a_runner_without_a_gpu_proves_nothing_and_its_run_is_cancelled(
    backends: dict[str, BackendUnderTest],
) -> None:
    service = backends["runner"].service
    # Its two steps can be over before the cancellation arrives with the runner's heartbeat.
    long = ("--set", "placement.type=inline", "--set", "schedule.total_steps=200")
    code, document = accept(service, "gpu", *SMALL, *long)
    assert code == 1
    assert names(document) == ["plan", "submitted", "started"]
    assert "docs/own-gpu.md" in document["observations"][-1]["remedy"]
    assert document["acceptance"] is None
    (newest, *_) = service.http.get("/v1/runs").json()["data"]
    service.until_status(newest["id"], "cancelled")


@contextmanager
def fleet_server() -> Iterator[str]:
    """`hillclimb fleet serve`, as a user starts it."""
    command = [sys.executable, "-m", "hillclimb.cli", "fleet", "serve", "--json"]
    environment = {**os.environ, "HILLCLIMB_TRAINER_PYTHON": str(TRAINER_PYTHON)}
    environment |= {"FLEET_API_KEY": FLEET_KEY}
    with subprocess.Popen(
        command, cwd=CODE_ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["base_url"]
        finally:
            server.terminate()
            server.wait(30.0)


def test_a_platform_is_accepted_at_its_address(backends: dict[str, BackendUnderTest]) -> None:
    service = backends["runner"].service
    with fleet_server() as url:
        headers = {"Authorization": f"Bearer {FLEET_KEY}"}
        tasks = httpx.get(f"{url}/v1/tasks", params={"env_key": "booking"}, headers=headers)
        words = ("fleet", "--env", "booking", "--task", tasks.json()["tasks"][0]["key"])
        code, document = accept(service, *words, FLEET_BASE_URL=url, FLEET_API_KEY=FLEET_KEY)
        assert code == 0, document
        assert names(document) == list(FACTS["fleet"].checks)
        assert document["acceptance"]["subject"] == url
        code, document = accept(service, *words, FLEET_BASE_URL=url, FLEET_API_KEY="of-nobody")
        assert (code, names(document)) == (1, [])
        assert "set FLEET_API_KEY" in document["observations"][0]["remedy"]
        instances = httpx.get(f"{url}/v1/env/instances", headers=headers)
    assert instances.json() == []


def test_a_tinker_server_is_accepted_at_its_address(
    backends: dict[str, BackendUnderTest], tinker_url: str
) -> None:
    service = backends["tinker"].service
    named = {"TINKER_BASE_URL": tinker_url, "TINKER_API_KEY": KEY}
    code, document = accept(service, "tinker", "--model", MODEL_NAME, **named)
    assert code == 0, document
    assert names(document) == list(FACTS["tinker"].checks)
    assert document["acceptance"]["subject"] == tinker_url
    assert KEY not in json.dumps(document)
    wrong = named | {"TINKER_API_KEY": "tml-of-nobody"}
    code, document = accept(service, "tinker", "--model", MODEL_NAME, **wrong)
    assert (code, names(document)) == (1, [])
    assert "set TINKER_API_KEY" in document["observations"][0]["remedy"]
