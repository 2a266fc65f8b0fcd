"""The services of the compose file, each as it says, train a run together.

No container engine runs here. PostgreSQL is the embedded one, because its image's entry point is no
command of the compose file; everything else starts with its command, its variables and its user.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from hillclimb.stack.system.poll import wait_until
from tests.e2e.compose.deployment import CONTROL, IMAGE_UID, Deployment

DEADLINE_S = 240.0
SPEC: dict[str, Any] = {
    "name": "as composed",
    "engine": {"type": "torch"},
    "placement": {"type": "inline"},
    "data": {"env_keys": ["booking"], "train_tasks_per_env": 20, "eval_tasks_per_env": 4},
    "rollout": {"n_samples_per_prompt": 4},
    "schedule": {"total_steps": 1, "train_batch_size": 2, "mini_batch_size": 2},
}


def test_a_run_trains(deployment: Deployment, http: httpx.Client) -> None:
    answer = http.post("/v1/runs", json=SPEC)
    assert answer.status_code == 201, answer.text
    run_id = answer.json()["id"]

    def status() -> str:
        return str(http.get(f"/v1/runs/{run_id}").json()["status"])

    def ended() -> bool:
        gone = [name for name in (*CONTROL, "runner") if deployment.processes[name].poll()]
        return bool(gone) or status() in ("succeeded", "failed", "cancelled")

    assert wait_until(ended, deadline_s=DEADLINE_S)
    logs = "\n".join(deployment.log(name)[-1500:] for name in ("api", "worker", "runner"))
    assert status() == "succeeded", http.get(f"/v1/runs/{run_id}").text + logs


def test_every_service_is_the_images_user_without_a_capability(deployment: Deployment) -> None:
    for name, process in deployment.processes.items():
        if process.poll() is not None:
            continue
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert status["NoNewPrivs"] == "1", name
        if os.geteuid() == 0:
            assert status["Uid"].split() == [str(IMAGE_UID)] * 4, name
            assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, name


def test_no_secret_is_on_a_command_line(deployment: Deployment) -> None:
    hidden = deployment.variables.values()
    for process in deployment.processes.values():
        if process.poll() is None:
            family = [psutil.Process(process.pid)]
            family += family[0].children(recursive=True)
            words = " ".join(word for each in family for word in each.cmdline())
            assert not any(secret in words for secret in hidden)


def test_the_health_checks_say_that_all_work(deployment: Deployment) -> None:
    for name in (*CONTROL, "runner"):
        assert wait_until(lambda n=name: deployment.health(n) == 0, deadline_s=60.0), name


def test_what_connects_to_the_database_may_change_no_table(deployment: Deployment) -> None:
    url = deployment.environment("api")["DATABASE_URL"].replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles"
            " WHERE rolname = current_user"
        ).fetchone()
        assert row == (False,)
        for statement in (
            "DROP TABLE runs",
            "CREATE TABLE mine (id int)",
            "DELETE FROM audit_records",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
