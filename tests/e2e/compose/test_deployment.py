"""The services of the compose file, each as it says, train a run together.

No container engine runs here. PostgreSQL is the embedded one, because its image's entry point is no
command of the compose file; everything else starts with its command, its variables and its user.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.servers.valkey import answers_ping
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.e2e.compose.deployment import IMAGE_UID, ROOT, Deployment, example_variables
from tests.fixtures.postgres import UNSAFE_BUT_FAST, launch, stop

pytestmark = pytest.mark.skipif(
    os.environ.get("HILLCLIMB_E2E") != "1", reason="minutes long: `make e2e` runs it"
)

IMAGE_PYTHON = ROOT / ".venv-image/bin/python"
TRAINER_PACKAGES = next((ROOT / ".venv-trainer/lib").glob("python3.*/site-packages"))
CONTROL = ("api", "worker", "beat")
DEADLINE_S = 240.0
SPEC: dict[str, Any] = {
    "name": "as composed",
    "engine": {"type": "torch"},
    "placement": {"type": "inline"},
    "data": {"env_keys": ["booking"], "train_tasks_per_env": 20, "eval_tasks_per_env": 4},
    "rollout": {"n_samples_per_prompt": 4},
    "schedule": {"total_steps": 1, "train_batch_size": 2, "mini_batch_size": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders as the image makes them: of its user, open to nobody else."""
    assert IMAGE_PYTHON.exists(), "tests/e2e/compose/install_image.sh makes it"
    assert shutil.which("setpriv"), "util-linux has it"
    made = tmp_path_factory.mktemp("compose").resolve()
    for name in ("state", "home"):
        (made / name).mkdir(mode=0o700)
    if os.geteuid() == 0:
        # Whoever may not pass a folder above cannot be given one inside it.
        for above in (made, *made.parents[:2]):
            above.chmod(0o755)
        for each in (made, made / "state", made / "home"):
            os.chown(each, IMAGE_UID, IMAGE_UID)
    return made


def trainer_python(folder: Path) -> Path:
    """The image's Python with the trainer's packages; that of `.venv-trainer` may be root's own."""
    script = folder / "trainer-python"
    path = f"PYTHONPATH={ROOT}:{TRAINER_PACKAGES}"
    script.write_text(f'#!/bin/sh\n{path} exec {IMAGE_PYTHON.resolve()} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Iterator[Deployment]:
    variables = example_variables(secrets.token_hex(16))
    ports = {name: find_free() for name in ("postgres", "valkey", "api")}
    server = PostgresServer(
        directory=folder / "pg",
        port=ports["postgres"],
        password=variables["POSTGRES_PASSWORD"],
        settings=UNSAFE_BUT_FAST,
        durable=False,
    )
    folder.chmod(0o777)  # the embedded server becomes a user of its own
    server.initialise()
    postgres = launch(
        server.command(), cwd=server.data, log=folder / "postgres.log", account=server.account
    )
    running = Deployment(
        folder=folder,
        variables=variables,
        replaced={
            "postgres:5432": f"127.0.0.1:{ports['postgres']}",
            "valkey:6379": f"127.0.0.1:{ports['valkey']}",
            "http://api:8710": f"http://127.0.0.1:{ports['api']}",
            "127.0.0.1:8710": f"127.0.0.1:{ports['api']}",
            "8710": str(ports["api"]),
            "0.0.0.0": "127.0.0.1",
            "/var/lib/hillclimb": str(folder / "state"),
            r"dir /data\n": rf"dir {folder}/state\nbind 127.0.0.1\nport {ports['valkey']}\n",
        },
        pythons={"api": IMAGE_PYTHON, "worker": IMAGE_PYTHON, "trainer": trainer_python(folder)},
    )
    try:
        assert wait_until(server.ready, deadline_s=30.0)
        running.start("valkey")
        password = variables["VALKEY_PASSWORD"]
        assert wait_until(lambda: answers_ping(ports["valkey"], password), deadline_s=30.0)
        assert running.start("migrate").wait(DEADLINE_S) == 0, running.log("migrate")
        for name in CONTROL:
            running.start(name)
        assert wait_until(lambda: running.health("api") == 0, deadline_s=60.0), running.log("api")
        running.start("runner")
        yield running
    finally:
        running.stop()
        stop(postgres)


@pytest.fixture
def http(deployment: Deployment) -> Iterator[httpx.Client]:
    key = deployment.variables["HILLCLIMB_BOOTSTRAP_KEY"]
    url = deployment.replaced["http://api:8710"]
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, trust_env=False
    ) as client:
        yield client


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


def test_all_end_when_they_are_asked_to(deployment: Deployment) -> None:
    """The last test: exit codes of what ended by itself or by SIGTERM, and nothing killed."""
    codes = deployment.stop()
    assert set(codes) == {"valkey", "migrate", *CONTROL, "runner"}
    assert -9 not in codes.values(), codes
