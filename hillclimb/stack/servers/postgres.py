"""The stack's own PostgreSQL server: data directory, command line and readiness."""

import hmac
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from hillclimb.stack.errors import ServiceFailed
from hillclimb.stack.system.binaries import SystemUser, postgres_programs, server_account
from hillclimb.stack.system.ports import LOOPBACK
from hillclimb.stack.system.processes import identify, processes_in, stop_process

SUPERUSER = "hillclimb"
"""Owns the tables; migrations connect as this role alone."""
SERVICE_ROLE = "hillclimb_service"
"""Reads and writes rows: API, worker and beat connect as this role."""
DATABASE = "hillclimb"
STOP_S = 30.0

# Under root the server runs as `nobody`, which cannot traverse our state directory (0700) to the
# data directory. It is started in the data directory, and this link resolves without traversal.
HERE = "/proc/self/cwd"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """One PostgreSQL cluster in `directory`/data, on 127.0.0.1:`port`, scram passwords only.

    `settings` are server parameters added on the command line; `durable=False` skips every fsync
    of initialisation and makes its password quick to check (tests).
    """

    directory: Path
    port: int
    password: str
    settings: Mapping[str, str] = field(default_factory=dict)
    durable: bool = True
    account: SystemUser | None = field(default_factory=server_account)

    @property
    def data(self) -> Path:
        """The data directory; also the directory the server must be started in."""
        return self.directory / "data"

    def url(self, database: str = DATABASE, *, driver: str = "postgresql+psycopg") -> str:
        """The connection URL, with the password, of `database` on this server."""
        return f"{driver}://{SUPERUSER}:{self.password}@{LOOPBACK}:{self.port}/{database}"

    def service_url(self, *, driver: str = "postgresql+psycopg") -> str:
        """The connection URL of the service's role, which migrations create.

        Its password follows from the server's: whoever knows the owner's needs no other.
        """
        digest = hmac.digest(self.password.encode(), SERVICE_ROLE.encode(), "sha256")
        return f"{driver}://{SERVICE_ROLE}:{digest.hex()}@{LOOPBACK}:{self.port}/{DATABASE}"

    def command(self) -> tuple[str, ...]:
        """The server's command line; run it in `data`, as `account` if set."""
        parameters = {
            "port": str(self.port),
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "password_encryption": "scram-sha-256",
            "timezone": "UTC",
            "log_timezone": "UTC",
        } | dict(self.settings)
        flags = [part for key, value in parameters.items() for part in ("-c", f"{key}={value}")]
        return (self._program("postgres"), "-D", self._data_name(), *flags)

    def initialise(self) -> bool:
        """Create the cluster and the database `hillclimb` unless they exist; True when created.

        It works in a staging directory that is renamed last, so an interrupted first start leaves
        nothing incomplete. Raises ServiceFailed with initdb's output.
        """
        if self.data.exists():
            return False
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        staging = self.directory / "data.new"
        if staging.exists():
            shutil.rmtree(staging)
        staging.mkdir(mode=0o700)
        password = self.directory / "password.new"
        password.touch(mode=0o600)
        password.write_text(self.password)
        try:
            self._give_to_account(self.directory, staging, password)
            self._initdb(staging)
            self._create_database(staging)
        finally:
            password.unlink()
        staging.rename(self.data)
        return True

    def prepare(self) -> None:
        """Prepare the data directory: create it, and stop a postmaster without a supervisor.

        A `postmaster.pid` whose pid now belongs to an unrelated process (after a reboot) is
        removed, because PostgreSQL would wait for that process. Any other one stays: it guards
        against backends that outlived a killed postmaster.
        """
        self.initialise()
        pid_file = self.data / "postmaster.pid"
        if not pid_file.exists():
            return
        owner = identify(int(pid_file.read_text().split("\n", 1)[0]))
        users = processes_in(self.data)
        if owner is not None and owner in users:
            stop_process(owner, signal.SIGINT, deadline_s=STOP_S)
        elif owner is not None and not users:
            pid_file.unlink()

    def ready(self) -> bool:
        """Tell whether the server accepts a login with our password to our database."""
        try:
            url = self.url(driver="postgresql")
            with psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def _initdb(self, staging: Path) -> None:
        options = [
            f"--username={SUPERUSER}",
            "--auth=scram-sha-256",
            "--pwfile=../password.new",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
        ]
        if not self.durable:
            # A password is hashed 4,096 times for each connection: 5 of its 14 ms.
            options += ["--no-sync", "-c", "scram_iterations=1"]
        self._run(("initdb", "-D", self._data_name(staging), *options), staging)

    def _create_database(self, staging: Path) -> None:
        quick = () if self.durable else ("-c", "fsync=off")
        single = ("postgres", "--single", "-D", self._data_name(staging), *quick, "postgres")
        self._run(single, staging, text=f"CREATE DATABASE {DATABASE};\n")

    def _run(self, command: tuple[str, ...], directory: Path, *, text: str = "") -> None:
        program, *arguments = command
        done = subprocess.run(
            [self._program(program), *arguments],
            check=False,
            cwd=directory,
            input=text,
            capture_output=True,
            text=True,
            env={"PATH": os.defpath} if self.account else None,
            user=self.account.uid if self.account else None,
            group=self.account.gid if self.account else None,
            extra_groups=() if self.account else None,
        )
        if done.returncode != 0:
            raise ServiceFailed(f"{program} failed in {directory}: {done.stderr.strip()[-800:]}")

    def _give_to_account(self, *paths: Path) -> None:
        if self.account is not None:
            for path in paths:
                shutil.chown(path, self.account.uid, self.account.gid)

    def _data_name(self, data: Path | None = None) -> str:
        inside = self.account is not None and Path(HERE).exists()  # only Linux has it
        return HERE if inside else str((data or self.data).resolve())

    def _program(self, name: str) -> str:
        return str(postgres_programs() / name)
