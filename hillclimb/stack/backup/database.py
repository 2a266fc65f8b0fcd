"""The embedded PostgreSQL for a backup: the running one, or one that runs just for it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from hillclimb.stack.backup.errors import BackupRefused
from hillclimb.stack.errors import ServiceFailed
from hillclimb.stack.servers.postgres import DATABASE, SUPERUSER, PostgresServer
from hillclimb.stack.system.binaries import postgres_programs
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import LOOPBACK, find_free

START_S, STOP_S = 60.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """The migration of a database, and the server's version."""

    revision: str
    postgres_version: int


@contextmanager
def running(server: PostgresServer) -> Iterator[PostgresServer]:
    """Yield the server, started if nothing answers at its port; then stop what was started.

    Raises ServiceFailed when it does not start.
    """
    if server.data.exists() and server.ready():
        yield server
        return
    server.prepare()
    own = PostgresServer(directory=server.directory, port=find_free(), password=server.password)
    account = own.account
    process = subprocess.Popen(
        own.command(),
        cwd=own.data,
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=() if account else None,
    )
    try:
        started = wait_until(lambda: own.ready() or process.poll() is not None, deadline_s=START_S)
        if not started or process.poll() is not None:
            raise ServiceFailed(f"PostgreSQL in {own.directory} did not start within {START_S:g} s")
        yield own
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_S)


def schema_of(server: PostgresServer) -> SchemaState:
    """Return the schema of the database; raises BackupRefused for one that was never migrated."""
    with psycopg.connect(server.url(driver="postgresql"), connect_timeout=10) as connection:
        table = connection.execute("SELECT to_regclass('alembic_version')::text").fetchone()
        if table is None or table[0] is None:
            raise BackupRefused("The database has no tables yet: there is nothing to save.")
        newest = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        assert newest is not None
        return SchemaState(
            revision=newest[0],
            postgres_version=connection.info.server_version // 10_000,
        )


def dump(server: PostgresServer, target: Path) -> None:
    """Write the database, as it is at one moment, to a new file that only this user can read.

    Raises ServiceFailed with pg_dump's words.
    """
    target.touch(mode=0o600)
    options = ("--format=custom", "--no-owner", "--no-privileges", f"--file={target}")
    _run(server, ("pg_dump", *options, DATABASE))


def load(server: PostgresServer, source: Path) -> None:
    """Fill the empty database from a file; raises ServiceFailed with pg_restore's words."""
    options = ("--no-owner", "--no-privileges", "--exit-on-error", f"--dbname={DATABASE}")
    _run(server, ("pg_restore", *options, str(source)))


def _run(server: PostgresServer, command: Sequence[str]) -> None:
    program, *arguments = command
    done = subprocess.run(
        [str(postgres_programs() / program), *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={
            "PATH": os.defpath,
            "PGHOST": LOOPBACK,
            "PGPORT": str(server.port),
            "PGUSER": SUPERUSER,
            "PGPASSWORD": server.password,
        },
    )
    if done.returncode != 0:
        raise ServiceFailed(f"{program} failed: {done.stderr.strip()[-800:]}")
