"""Real PostgreSQL and Valkey for tests: started in a second, gone with the process that asked."""

import ctypes
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from hillclimb.stack.binaries import Account
from hillclimb.stack.poll import wait_until
from hillclimb.stack.ports import find_free
from hillclimb.stack.postgres import PostgresServer
from hillclimb.stack.valkey import ValkeyServer

START_DEADLINE_S = 30.0
PR_SET_PDEATHSIG = 1

UNSAFE_BUT_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    # Its launcher visits every database once a minute, and each test has one of its own.
    "autovacuum": "off",
}


@dataclass(slots=True, kw_only=True)
class RunningPostgres:
    """A PostgreSQL of the test session's own."""

    server: PostgresServer
    process: subprocess.Popen[bytes]
    folder: Path
    _templates: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """`postgresql+psycopg://` URL of the empty database `hillclimb`."""
        return self.server.url()

    def create_database(
        self, *, template: str | None = None, prepare: Callable[[str], None] | None = None
    ) -> str:
        """URL of a fresh database: empty, or a copy of one that `prepare(url)` filled once.

        `template` names that prepared state; `prepare` (migrations, say) runs at the first call
        with the name, every later call only copies files, about 50 ms.
        """
        if template is None:
            return self._create()
        if template not in self._templates:
            if prepare is None:
                raise ValueError(f"the first use of template {template!r} needs `prepare`")
            url = self._create()
            prepare(url)
            self._templates[template] = url.rpartition("/")[2]
        return self._create(self._templates[template])

    def stop(self) -> None:
        """Stop the server without a last checkpoint (it would write a hundred databases to disk,
        88 s were seen) and remove its files.
        """
        stop(self.process, signal.SIGQUIT)
        shutil.rmtree(self.folder)

    def _create(self, template: str = "template1") -> str:
        name = f"test_{secrets.token_hex(6)}"
        admin = self.server.url("postgres", driver="postgresql")
        with psycopg.connect(admin, autocommit=True) as connection:
            # A connection pool that `prepare` left open would make the copy fail.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                (template,),
            )
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self.server.url(name)


@dataclass(slots=True, kw_only=True)
class RunningValkey:
    """A Valkey of the test session's own."""

    server: ValkeyServer
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def url(self) -> str:
        """`redis://` URL with the password, database 0."""
        return self.server.url

    def stop(self) -> None:
        """Stop the server and remove its files."""
        stop(self.process)
        shutil.rmtree(self.folder)


def start_test_postgres() -> RunningPostgres:
    """Start a PostgreSQL in a temporary directory; the caller calls `stop()`."""
    folder = Path(tempfile.mkdtemp(prefix="hillclimb-test-pg-"))
    server = PostgresServer(
        directory=folder / "pg",
        port=find_free(),
        password=secrets.token_urlsafe(24),
        settings=UNSAFE_BUT_FAST,
        durable=False,
    )
    server.initialise()
    process = launch(server.command(), cwd=server.data, log=folder / "log", account=server.account)
    if not wait_until(server.ready, deadline_s=START_DEADLINE_S):
        process.kill()
        raise RuntimeError(f"PostgreSQL did not start:\n{(folder / 'log').read_text()[-2000:]}")
    return RunningPostgres(server=server, process=process, folder=folder)


def start_test_valkey() -> RunningValkey:
    """Start a Valkey in a temporary directory; the caller calls `stop()`."""
    folder = Path(tempfile.mkdtemp(prefix="hillclimb-test-valkey-"))
    server = ValkeyServer(
        directory=folder / "valkey", port=find_free(), password=secrets.token_urlsafe(24)
    )
    server.initialise()
    process = launch(server.command(), cwd=folder, log=folder / "log")
    if not wait_until(server.ready, deadline_s=START_DEADLINE_S):
        process.kill()
        raise RuntimeError(f"Valkey did not start:\n{(folder / 'log').read_text()[-2000:]}")
    return RunningValkey(server=server, process=process, folder=folder)


def launch(
    command: tuple[str, ...], *, cwd: Path, log: Path, account: Account | None = None
) -> subprocess.Popen[bytes]:
    """Start a server that dies with this process (on Linux), even when a test run is killed."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
        )


def stop(process: subprocess.Popen[bytes], signal_number: signal.Signals = signal.SIGINT) -> None:
    """Send the signal, then SIGKILL after 20 s."""
    process.send_signal(signal_number)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
