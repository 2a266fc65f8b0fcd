"""`hillclimb doctor`: what is missing or wrong on this machine, and how to mend it."""

import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import httpx
import psycopg

from hillclimb.stack.binaries import postgres_programs, server_account, valkey_program
from hillclimb.stack.control import status
from hillclimb.stack.credentials import load_credentials
from hillclimb.stack.errors import StackError
from hillclimb.stack.options import CODE_ROOT, StackOptions
from hillclimb.stack.ports import is_free
from hillclimb.stack.postgres import PostgresServer
from hillclimb.stack.processes import owned_by
from hillclimb.stack.records import StackRecord
from hillclimb.stack.state import StateDirectory

LEAST_FREE_BYTES = 2 * 2**30
IMPORT_DEADLINE_S = 120.0
SERVICE_TIMEOUT_S = 10.0
NOT_INSTALLED = 3
"""Exit status of a script that looked for a library."""
PYTHONS = ((3, 11), (3, 12))
NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "alembic", "celery", "redis", "pydantic")

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; `mend` says what to do and is empty when nothing is to be done."""

    name: str
    level: Level
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalLibrary:
    """A library of the data plane without which training goes another way."""

    name: str
    module: str
    """What is imported: all that a build for another machine fails at."""
    without: str
    mend: str


OPTIONAL = (
    OptionalLibrary(
        name="ray",
        module="ray",
        without="a run is one process",
        mend="Run `make setup`, or set placement.type to inline in the spec.",
    ),
    OptionalLibrary(
        name="vllm",
        module="vllm.v1.engine.async_llm",
        without="the torch engine samples",
        mend="The torch engine samples instead: `engine.type: torch` in the spec says so.",
    ),
)


def examine(options: StackOptions) -> list[Check]:
    """Every check, in a fixed order; never raises for what it finds."""
    record = status(options.state_dir)
    probes: tuple[Callable[[], Iterator[Check]], ...] = (
        _python,
        _packages,
        _servers,
        lambda: _trainer(options),
        lambda: _state(options),
        lambda: _leftovers(options, record),
        lambda: _ports(options, record),
        lambda: _database(options, record),
        lambda: _service(record),
    )
    return [check for probe in probes for check in probe()]


def _python() -> Iterator[Check]:
    found = f"Python {sys.version.split()[0]} at {sys.executable}"
    good = sys.version_info[:2] in PYTHONS
    mend = "Use Python 3.11 or 3.12: `make setup PYTHON=python3.11`."
    yield Check(
        name="python", level="ok" if good else "fail", found=found, mend="" if good else mend
    )


def _packages() -> Iterator[Check]:
    missing, present = [], []
    for package in NEEDED:
        try:
            present.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        found = f"not installed: {', '.join(missing)}"
        yield Check(name="packages", level="fail", found=found, mend="Run `make setup`.")
    else:
        yield Check(name="packages", level="ok", found=", ".join(present))


def _servers() -> Iterator[Check]:
    account = server_account()
    try:
        found = f"{postgres_programs() / 'postgres'}" + (f" as {account.name}" if account else "")
        yield Check(name="postgres", level="ok", found=found)
        yield Check(name="valkey", level="ok", found=str(valkey_program()))
    except (StackError, OSError) as error:
        mend = "Run `make setup`, or set DATABASE_URL and REDIS_URL to servers of your own."
        yield Check(name="servers", level="fail", found=str(error), mend=mend)


def _trainer(options: StackOptions) -> Iterator[Check]:
    python = options.find_trainer_python()
    script = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    mend = "Run `make setup`, or set HILLCLIMB_TRAINER_PYTHON."
    try:
        torch, transformers = _printed(python, script)
    except FileNotFoundError:
        yield Check(name="trainer", level="fail", found=f"no interpreter at {python}", mend=mend)
    except subprocess.CalledProcessError as error:
        found = f"{python}: {_last_line(error)}"
        yield Check(name="trainer", level="fail", found=found, mend=mend)
    except subprocess.TimeoutExpired:
        found = f"{python} took over {IMPORT_DEADLINE_S:.0f} s to import torch"
        yield Check(name="trainer", level="warn", found=found, mend="Close other programs.")
    else:
        found = f"torch {torch}, transformers {transformers} at {python}"
        yield Check(name="trainer", level="ok", found=found)
        yield from (_optional(python, library) for library in OPTIONAL)


def _optional(python: Path, library: OptionalLibrary) -> Check:
    """One of the trainer's libraries that it can do without; missing is no fault."""
    script = (
        f"import importlib.util, sys; importlib.util.find_spec({library.name!r})"
        f" or sys.exit({NOT_INSTALLED}); import {library.module}, {library.name};"
        f" print({library.name}.__version__)"
    )
    try:
        *_, found = _printed(python, script)
    except subprocess.CalledProcessError as error:
        if error.returncode == NOT_INSTALLED:
            return Check(name=library.name, level="ok", found=f"not installed: {library.without}")
        found = f"does not import: {_last_line(error)}"
        return Check(name=library.name, level="warn", found=found, mend=library.mend)
    except subprocess.TimeoutExpired:
        found = f"took over {IMPORT_DEADLINE_S:.0f} s to import"
        return Check(name=library.name, level="warn", found=found, mend="Close other programs.")
    return Check(name=library.name, level="ok", found=f"{library.name} {found}")


def _printed(python: Path, script: str) -> list[str]:
    """Words that `script` prints."""
    done = subprocess.run(
        [str(python), "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=IMPORT_DEADLINE_S,
    )
    return done.stdout.split()


def _last_line(error: subprocess.CalledProcessError) -> str:
    lines: list[str] = error.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {error.returncode}"


def _state(options: StackOptions) -> Iterator[Check]:
    path = options.state_dir
    existing = next(place for place in (path, *path.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    enough = free >= LEAST_FREE_BYTES
    yield Check(
        name="disk",
        level="ok" if enough else "fail",
        found=f"{free / 2**30:.1f} GiB free at {existing}",
        mend="" if enough else "Free at least 2 GiB, or set HILLCLIMB_STATE_DIR to another disk.",
    )
    if not path.exists():
        yield Check(name="state", level="ok", found=f"{path} will be made by `hillclimb up`")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    private = mode & 0o077 == 0
    yield Check(
        name="state",
        level="ok" if private else "warn",
        found=f"{path}, mode {mode:04o}",
        mend="" if private else f"Others can enter it and it holds keys: `chmod 700 {path}`.",
    )
    secrets = StateDirectory(path).secrets_file
    if secrets.exists() and secrets.stat().st_mode & 0o077:
        mend = f"`chmod 600 {secrets}`, and make new keys if others use this machine."
        yield Check(name="secrets", level="fail", found=f"others can read {secrets}", mend=mend)


def _leftovers(options: StackOptions, record: StackRecord) -> Iterator[Check]:
    if record.supervisor is not None:
        yield Check(name="supervisor", level="ok", found=f"running, pid {record.supervisor.pid}")
        return
    left = [str(identity.pid) for identity, _ in owned_by(options.state_dir)]
    if left:
        found = f"processes without a supervisor: {', '.join(left)}"
        mend = "`hillclimb up` adopts them, `hillclimb down` stops them."
        yield Check(name="supervisor", level="warn", found=found, mend=mend)
    elif options.state_dir.exists() and StateDirectory(options.state_dir).locked():
        mend = "Another `up` or `down` is at work; wait for it."
        yield Check(name="supervisor", level="warn", found="the lock is held", mend=mend)
    else:
        yield Check(name="supervisor", level="ok", found="not running, nothing left over")


def _ports(options: StackOptions, record: StackRecord) -> Iterator[Check]:
    if record.supervisor is not None:
        used = ", ".join(f"{name} {port}" for name, port in record.ports.items())
        yield Check(name="ports", level="ok", found=used)
        return
    wanted = {
        "api": options.api_port,
        "postgres": options.postgres_port,
        "valkey": options.valkey_port,
    }
    taken = [f"{name} {port}" for name, port in wanted.items() if port and not is_free(port)]
    if taken:
        found = f"taken: {', '.join(taken)}"
        mend = "Choose other ports, or leave them open: free ones are found."
        yield Check(name="ports", level="fail", found=found, mend=mend)
    else:
        yield Check(name="ports", level="ok", found="free ports are found at start")


def _database(options: StackOptions, record: StackRecord) -> Iterator[Check]:
    url = options.database_url or _own_database_url(options, record)
    if url is None:
        yield Check(name="database", level="ok", found="not running")
        return
    migrated = CODE_ROOT / "migrations" / "versions"
    try:
        with psycopg.connect(url.replace("+psycopg", "", 1), connect_timeout=3) as connection:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        mend = "`hillclimb up` migrates it."
        yield Check(name="database", level="warn", found="reachable, not migrated", mend=mend)
    except psycopg.Error as error:
        found = str(error).strip().splitlines()[0] if str(error).strip() else "not reachable"
        mend = "See logs/postgres.log in the state directory, or DATABASE_URL."
        yield Check(name="database", level="fail", found=found, mend=mend)
    else:
        revision = str(row[0]) if row else "none"
        known = any(revision in file.name for file in migrated.glob("*.py"))
        yield Check(
            name="database",
            level="ok" if known else "warn",
            found=f"reachable, at revision {revision}",
            mend="" if known else f"This code does not know it: {migrated} is older or newer.",
        )


def _service(record: StackRecord) -> Iterator[Check]:
    """What the running service says is wrong with itself; nothing where none runs."""
    if record.supervisor is None or record.url is None:
        return
    ready = f"{record.url}/v1/health/ready"
    try:
        answer = httpx.get(ready, timeout=SERVICE_TIMEOUT_S, trust_env=False).raise_for_status()
        warnings = answer.json().get("warnings", [])
    except (httpx.HTTPError, ValueError) as error:
        mend = "See logs/api.log in the state directory."
        yield Check(name="service", level="fail", found=str(error), mend=mend)
        return
    if not warnings:
        yield Check(name="service", level="ok", found="nothing is wrong beside its requests")
    for warning in warnings:
        found, _, mend = warning.partition(". ")
        yield Check(name="service", level="warn", found=found, mend=mend)


def _own_database_url(options: StackOptions, record: StackRecord) -> str | None:
    service = record.services.get("postgres")
    credentials = load_credentials(StateDirectory(options.state_dir))
    if service is None or service.process is None or credentials is None:
        return None
    server = PostgresServer(
        directory=options.state_dir / "pg",
        port=record.ports["postgres"],
        password=credentials.postgres_password,
    )
    return server.url()
