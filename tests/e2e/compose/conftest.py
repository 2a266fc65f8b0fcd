"""The services of the compose file, started as it says; PostgreSQL alone is the embedded one."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.servers.valkey import answers_ping
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.e2e.compose.deployment import (
    CONTROL,
    IMAGE_UID,
    ROOT,
    WIRED,
    Deployment,
    example_variables,
)
from tests.e2e.compose.wire import Wire
from tests.fixtures.postgres import UNSAFE_BUT_FAST, launch, stop

IMAGE_PYTHON = ROOT / ".venv-image/bin/python"
START_S = 120.0


@pytest.fixture(autouse=True, scope="package")
def only_where_asked_for() -> None:
    if os.environ.get("HILLCLIMB_E2E") != "1":
        pytest.skip("minutes long: `make e2e` runs it")


@pytest.fixture(scope="package")
def folder() -> Iterator[Path]:
    """Folders as the image makes them: of its user, open to nobody else.

    Not in pytest's: the next pytest of this machine closes that to every other user.
    """
    assert IMAGE_PYTHON.exists(), "tests/e2e/compose/install_image.sh makes it"
    assert shutil.which("setpriv"), "util-linux has it"
    made = Path(tempfile.mkdtemp(prefix="hillclimb-compose-")).resolve()
    for name in ("state", "home"):
        (made / name).mkdir(mode=0o700)
    if os.geteuid() == 0:
        made.chmod(0o711)  # PostgreSQL's user passes it
        for each in (made, made / "state", made / "home"):
            os.chown(each, IMAGE_UID, IMAGE_UID)
    yield made
    shutil.rmtree(made)


def trainer_python(folder: Path) -> Path:
    """The image's Python with the trainer's packages; that of `.venv-trainer` may be root's own."""
    packages = next((ROOT / ".venv-trainer/lib").glob("python3.*/site-packages"))
    script = folder / "trainer-python"
    path = f"PYTHONPATH={ROOT}:{packages}"
    script.write_text(f'#!/bin/sh\n{path} exec {IMAGE_PYTHON.resolve()} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture(scope="package")
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
    wires = {pair: Wire(ports[pair[1]]) for pair in WIRED}
    running = Deployment(
        folder=folder,
        variables=variables,
        ports=ports,
        pythons={"api": IMAGE_PYTHON, "worker": IMAGE_PYTHON, "trainer": trainer_python(folder)},
        wires=wires,
    )
    try:
        assert wait_until(server.ready, deadline_s=30.0)
        running.start("valkey")
        password = variables["VALKEY_PASSWORD"]
        assert wait_until(lambda: answers_ping(ports["valkey"], password), deadline_s=30.0)
        assert running.start("migrate").wait(START_S) == 0, running.log("migrate")
        for name in CONTROL:
            running.start(name)
        assert wait_until(lambda: running.health("api") == 0, deadline_s=START_S), running.log(
            "api"
        )
        running.start("runner")
        yield running
    finally:
        running.stop()
        for wire in wires.values():
            wire.close()
        stop(postgres)


@pytest.fixture
def http(deployment: Deployment) -> Iterator[httpx.Client]:
    key = deployment.variables["HILLCLIMB_BOOTSTRAP_KEY"]
    url = f"http://127.0.0.1:{deployment.ports['api']}"
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=30.0
    ) as client:
        yield client
