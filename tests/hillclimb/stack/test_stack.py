"""The real stack, all its services: up, killed piece by piece, up again, down."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import psycopg
import pytest

from hillclimb.stack.control import down, status, up_detached
from hillclimb.stack.doctor import examine
from hillclimb.stack.errors import StackError
from hillclimb.stack.options import StackOptions
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.state.connection import connection
from hillclimb.stack.state.credentials import load_credentials
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.processes import owned_by

DEADLINE_S = 90.0
SERVERS = ("postgres", "valkey", "api", "worker", "beat", "runner")

pytestmark = [pytest.mark.stack, pytest.mark.long]


@pytest.fixture
def options(tmp_path: Path) -> Iterator[StackOptions]:
    options = StackOptions(
        state_dir=tmp_path.resolve() / "state",
        api_port=0,
        api_processes=2,
        # No run is started here; importing torch to examine it would only take time.
        trainer_python=tmp_path / "no" / "python",
    )
    yield options
    down(options.state_dir, say=print)
    assert list(owned_by(options.state_dir)) == []


def pids(options: StackOptions) -> dict[str, int]:
    services = status(options.state_dir).services
    return {name: s.process.pid for name, s in services.items() if s.process is not None}


def restarted(options: StackOptions, name: str, old: int) -> bool:
    service = status(options.state_dir).services[name]
    return service.state == "ready" and service.process is not None and service.process.pid != old


def num_serving(options: StackOptions) -> int:
    """The API's processes that are there, those of a parent that was killed among them."""
    commands = [" ".join(command) for _, command in owned_by(options.state_dir)]
    return sum("multiprocessing.spawn" in each for each in commands)


def database(options: StackOptions) -> psycopg.Connection[tuple[object, ...]]:
    credentials = load_credentials(StateDirectory(options.state_dir))
    assert credentials is not None
    server = PostgresServer(
        directory=options.state_dir / "pg",
        port=status(options.state_dir).ports["postgres"],
        password=credentials.postgres_password,
    )
    return psycopg.connect(server.url(driver="postgresql"), autocommit=True)


def kill_supervisor(options: StackOptions) -> None:
    supervisor = status(options.state_dir).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    assert wait_until(lambda: not supervisor.identity.alive(), deadline_s=DEADLINE_S)


def check_healthy(options: StackOptions) -> None:
    """The doctor finds everything but a trainer, which is not installed here."""
    checks = {check.name: check for check in examine(options)}
    assert [name for name, check in checks.items() if check.level == "fail"] == ["trainer"]
    assert {checks[name].level for name in ("database", "broker", "blobs", "runners")} == {"ok"}
    assert "never restarted: " + ", ".join(SERVERS[:2]) in checks["services"].detail
    assert checks["runners"].detail.startswith("report: ")


def test_every_part_is_killed_and_comes_back_and_nothing_committed_is_lost(
    options: StackOptions,
) -> None:
    lines: list[str] = []
    up_detached(options, say=lines.append)
    assert set(pids(options)) == set(SERVERS)
    assert wait_until(lambda: num_serving(options) == 2, deadline_s=DEADLINE_S)
    with pytest.raises(StackError, match="is running with its API on port"):
        up_detached(replace(options, api_port=22), say=lines.append)
    found = connection(options.state_dir)
    assert found is not None
    headers = {"Authorization": f"Bearer {found.api_key}"}
    runs = f"{found.url}/v1/runs"
    assert httpx.get(runs, headers=headers, trust_env=False).status_code == 200
    assert httpx.get(runs, trust_env=False).status_code == 401
    check_healthy(options)
    with database(options) as connected:
        connected.execute("CREATE TABLE kept AS SELECT 41 + 1 AS n")

    # Under a live supervisor all six services die at once.
    first = pids(options)
    for pid in first.values():
        os.kill(pid, signal.SIGKILL)
    for name, pid in first.items():
        assert wait_until(partial(restarted, options, name, pid), deadline_s=DEADLINE_S), name
    told = {check.name: check.detail for check in examine(options)}
    assert all("killed by SIGKILL" in told[f"service {name}"] for name in SERVERS)

    assert wait_until(lambda: num_serving(options) == 2, deadline_s=DEADLINE_S)

    # The supervisor dies: the next one adopts all six.
    second = pids(options)
    kill_supervisor(options)
    up_detached(options, say=lines.append)
    assert pids(options) == second

    # The supervisor dies, then the servers below the others: what is left is adopted.
    kill_supervisor(options)
    for name in ("postgres", "api"):
        os.kill(second[name], signal.SIGKILL)
    up_detached(options, say=lines.append)
    third = pids(options)
    same = {name for name in SERVERS if third[name] == second[name]}
    assert same == {"valkey", "worker", "beat", "runner"}
    assert wait_until(lambda: num_serving(options) == 2, deadline_s=DEADLINE_S)
    with database(options) as connected:
        assert connected.execute("SELECT n FROM kept").fetchall() == [(42,)]
        allowed = connected.execute("SHOW max_connections").fetchall()
    assert allowed == [(str(2 * 43 + 6 * 5 + 20),)]
    assert httpx.get(runs, headers=headers, trust_env=False).status_code == 200

    assert down(options.state_dir, say=lines.append)
    assert list(owned_by(options.state_dir)) == []
