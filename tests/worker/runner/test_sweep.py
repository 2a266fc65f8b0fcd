"""What a killed trainer left on a platform is deleted by the runner, through the data plane."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hillclimb.process.host import TrainerHost
from hillclimb.process.sweep import LATE_S, Sweeper
from hillclimb.protocol.launch import LaunchPlan
from hillclimb.protocol.rundir import AttemptDir, run_tag
from tests.fixtures.factories import make_spec
from tests.worker.runner.bench import ROOT, Bench, gone
from tests.worker.runner.service import TOKEN, ScriptedService, plan

RUN, KEY = "run_0123456789", "key-of-sweeps"
TRAINER_PYTHON = ROOT / ".venv-trainer/bin/python"


@contextmanager
def platform() -> Iterator[httpx.Client]:
    """A real server of Fleet's contract, as a process of the data plane."""
    serve = ["-m", "hillclimb.minifleet.server", "serve", "--json", "--api-key", KEY]
    server = subprocess.Popen(
        [str(TRAINER_PYTHON), *serve], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["base_url"]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}) as client:
            yield client
    finally:
        server.terminate()
        server.wait(10.0)
        server.stdout.close()


@pytest.fixture(scope="module")
def fleet() -> Iterator[httpx.Client]:
    with platform() as client:
        yield client


@pytest.fixture
def bench(tmp_path: Path, service: ScriptedService, fleet: httpx.Client) -> Iterator[Bench]:
    environment = {"FLEET_API_KEY": KEY, "HILLCLIMB_RUN_PRIVATE_HOSTS": "loopback"}
    made = Bench(folder=tmp_path, url=service.url, token=TOKEN, environment=environment)
    made.prepare()
    # Training is the fake trainer's, sweeping the data plane's own.
    python = made.folder / "python"
    fake = python.with_name("fake")
    python.rename(fake)
    real = f'exec env PYTHONPATH={ROOT} {TRAINER_PYTHON} "$@"'
    python.write_text(f'#!/bin/sh\n[ "$2" = trainer.envs.sweep ] && {real}\nexec {fake} "$@"\n')
    python.chmod(0o755)
    yield made
    made.clean()


def on_fleet(service: ScriptedService, fleet: httpx.Client) -> LaunchPlan:
    address = str(fleet.base_url).rstrip("/")
    environment = {"provider": "fleet", "fleet": {"base_url": address}}
    base = plan(service.url)
    sections = base.spec.model_dump(mode="json", include={"data", "schedule", "checkpoints"})
    return base.model_copy(update={"spec": make_spec(environment=environment, **sections)})


def hold_instances(fleet: httpx.Client, attempt: int, number: int) -> None:
    for _ in range(number):
        body = {"env_key": "booking", "run_id": run_tag(RUN, attempt)}
        fleet.post("/v1/env/instances", json=body).raise_for_status()


def held(fleet: httpx.Client, attempt: int) -> int:
    found = fleet.get("/v1/env/instances", params={"run_id": run_tag(RUN, attempt)})
    return len(found.raise_for_status().json())


@pytest.mark.invariant("what a killed trainer left on a platform is deleted")
def test_what_a_killed_trainer_left_is_deleted_when_its_end_is_seen(
    bench: Bench, service: ScriptedService, fleet: httpx.Client
) -> None:
    hold_instances(fleet, 1, 3)
    hold_instances(fleet, 2, 1)
    (bench.gates / "die-2").touch()
    service.plans.append(on_fleet(service, fleet))
    bench.start()
    bench.until(lambda: "att_1" in service.ends, 60.0)
    assert service.ends["att_1"]["reason"] == "trainer_crashed"
    assert held(fleet, 1) == 0
    assert held(fleet, 2) == 1, "another attempt's instances are not ours to delete"
    fleet.delete("/v1/env/instances/batch", params={"run_id": run_tag(RUN, 2)})
    assert KEY not in (bench.folder / "runner.log").read_text()


@pytest.mark.long
def test_what_a_trainer_left_that_was_killed_while_no_runner_watched_is_deleted_at_the_start(
    bench: Bench, service: ScriptedService, fleet: httpx.Client
) -> None:
    bench.hold(2)
    service.plans.append(on_fleet(service, fleet))
    bench.start()
    trainer = bench.trainer(bench.attempt_dir(RUN, 1))
    hold_instances(fleet, 1, 2)
    bench.kill_runner()
    os.kill(trainer.pid, signal.SIGKILL)
    bench.until(gone(trainer))
    assert held(fleet, 1) == 2
    bench.start()
    bench.until(lambda: "att_1" in service.ends, 60.0)
    assert held(fleet, 1) == 0


@pytest.mark.long
def test_what_the_platform_creates_after_the_end_is_deleted_by_the_next_sweep(
    bench: Bench, service: ScriptedService, fleet: httpx.Client
) -> None:
    """A creation that a killed trainer asked for lands when the first sweep is long over."""
    service.plans.append(on_fleet(service, fleet))
    bench.start()
    bench.until(lambda: "att_1" in service.ends, 60.0)
    hold_instances(fleet, 1, 2)
    bench.kill_runner()
    (note,) = (bench.state / "runner" / "sweeps").glob("*.json")
    ended = json.loads(note.read_text())
    note.write_text(json.dumps(ended | {"ended_at": ended["ended_at"] - LATE_S[0]}))
    bench.start()
    bench.until(lambda: held(fleet, 1) == 0, 60.0)


@pytest.mark.long
def test_a_sweep_that_fails_does_not_keep_the_end_from_being_told(
    bench: Bench, service: ScriptedService, fleet: httpx.Client
) -> None:
    del bench.environment["FLEET_API_KEY"]
    service.plans.append(on_fleet(service, fleet))
    bench.start()
    bench.until(lambda: "att_1" in service.ends, 60.0)
    assert service.ends["att_1"]["reason"] == "completed"
    assert "was not swept: error: environment.provider fleet needs a key" in (
        bench.folder / "runner.log"
    ).read_text().replace("\n", " ")


@pytest.mark.parametrize(("provider", "is_swept"), [("fleet", True), ("minifleet", False)])
def test_a_spec_that_an_update_refuses_keeps_nothing_from_being_swept(
    tmp_path: Path, provider: str, is_swept: bool
) -> None:
    attempt_dir = AttemptDir(tmp_path / RUN, 1)
    attempt_dir.path.mkdir(parents=True)
    spec = {"environment": {"provider": provider, "a_key_of_before": 1}}
    attempt_dir.spec.write_text(json.dumps(spec))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    python.chmod(0o755)
    host = TrainerHost(
        runs_dir=tmp_path, own_dir=tmp_path, blobs_url="", trainer_python=str(python)
    )
    Sweeper(host, {"PATH": os.environ["PATH"]}).sweep(attempt_dir)
    assert (tmp_path / "asked").exists() == is_swept
