"""`hillclimb doctor`: checks of this machine, each with its fix."""

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
import redis

from hillclimb.blobs.base import StoreError
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from hillclimb.stack.control import status
from hillclimb.stack.errors import StackError
from hillclimb.stack.options import CODE_ROOT, StackOptions
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.servers.valkey import ValkeyServer
from hillclimb.stack.state.credentials import load_credentials
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ServiceRecord, ServiceState, StackRecord
from hillclimb.stack.system.binaries import postgres_programs, server_account, valkey_program
from hillclimb.stack.system.ports import is_free
from hillclimb.stack.system.processes import owned_by

LEAST_FREE_BYTES = 2 * 2**30
IMPORT_DEADLINE_S = 120.0
SERVICE_TIMEOUT_S = 10.0
BROKER_TIMEOUT_S = 3.0
STORE_TIMEOUT_S = 5.0
REDIS_FIX = "See logs/valkey.log in the state directory, or REDIS_URL."
RUNNING: frozenset[ServiceState] = frozenset({"ready", "done"})
NOT_INSTALLED = 3
"""Exit status of a script that did not find a library."""
NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "alembic", "celery", "redis", "pydantic")

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; `fix` is the remedy, empty if none is needed."""

    name: str
    level: Level
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalLibrary:
    """A library of the data plane that training can do without."""

    name: str
    module: str
    """Module to import, chosen so that a build for another machine fails."""
    without: str
    fix: str


OPTIONAL = (
    OptionalLibrary(
        name="ray",
        module="ray",
        without="a run is one process",
        fix="Run `make setup`, or set placement.type to inline in the spec.",
    ),
    OptionalLibrary(
        name="vllm",
        module="vllm.v1.engine.async_llm",
        without="the torch engine samples",
        fix="Set engine.type to torch in the spec: the torch engine samples instead.",
    ),
)


def examine(options: StackOptions) -> Iterator[Check]:
    """Yield all checks in a fixed order, each as soon as it is known; findings never raise."""
    record = status(options.state_dir)
    probes: tuple[Callable[[], Iterator[Check]], ...] = (
        _python,
        _packages,
        _servers,
        lambda: _trainer(options),
        lambda: _state(options),
        lambda: _supervisor(options, record),
        lambda: _ports(options, record),
        lambda: _services(record),
        lambda: _database(options, record),
        lambda: _broker(options, record),
        lambda: _blobs(options),
        lambda: _runners(options, record),
        lambda: _service(record),
    )
    for probe in probes:
        yield from probe()


def _python() -> Iterator[Check]:
    detail = f"Python {sys.version.split()[0]} at {sys.executable}"
    good = (3, 11, 2) <= sys.version_info < (3, 13)
    fix = "Use Python 3.11 (3.11.2 or later) or 3.12: `make setup PYTHON=python3.11`."
    yield Check(
        name="python", level="ok" if good else "fail", detail=detail, fix="" if good else fix
    )


def _packages() -> Iterator[Check]:
    missing, present = [], []
    for package in NEEDED:
        try:
            present.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        detail = f"not installed: {', '.join(missing)}"
        yield Check(name="packages", level="fail", detail=detail, fix="Run `make setup`.")
    else:
        yield Check(name="packages", level="ok", detail=", ".join(present))


def _servers() -> Iterator[Check]:
    account = server_account()
    try:
        detail = f"{postgres_programs() / 'postgres'}" + (f" as {account.name}" if account else "")
        yield Check(name="postgres", level="ok", detail=detail)
        yield Check(name="valkey", level="ok", detail=str(valkey_program()))
    except (StackError, OSError) as error:
        fix = "Run `make setup`, or set DATABASE_URL and REDIS_URL to servers of your own."
        yield Check(name="servers", level="fail", detail=str(error), fix=fix)


def _trainer(options: StackOptions) -> Iterator[Check]:
    python = options.find_trainer_python()
    script = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    fix = "Run `make setup`, or set HILLCLIMB_TRAINER_PYTHON."
    try:
        torch, transformers = _printed(python, script)
    except FileNotFoundError:
        yield Check(name="trainer", level="fail", detail=f"no interpreter at {python}", fix=fix)
    except subprocess.CalledProcessError as error:
        detail = f"{python}: {_last_line(error)}"
        yield Check(name="trainer", level="fail", detail=detail, fix=fix)
    except subprocess.TimeoutExpired:
        detail = f"{python} took over {IMPORT_DEADLINE_S:.0f} s to import torch"
        yield Check(name="trainer", level="warn", detail=detail, fix="Close other programs.")
    else:
        detail = f"torch {torch}, transformers {transformers} at {python}"
        yield Check(name="trainer", level="ok", detail=detail)
        yield from (_optional(python, library) for library in OPTIONAL)


def _optional(python: Path, library: OptionalLibrary) -> Check:
    """Check an optional library of the trainer; a missing one is ok."""
    script = (
        f"import importlib.util, sys; importlib.util.find_spec({library.name!r})"
        f" or sys.exit({NOT_INSTALLED}); import {library.module}, {library.name};"
        f" print({library.name}.__version__)"
    )
    try:
        *_, detail = _printed(python, script)
    except subprocess.CalledProcessError as error:
        if error.returncode == NOT_INSTALLED:
            return Check(name=library.name, level="ok", detail=f"not installed: {library.without}")
        detail = f"does not import: {_last_line(error)}"
        return Check(name=library.name, level="warn", detail=detail, fix=library.fix)
    except subprocess.TimeoutExpired:
        detail = f"took over {IMPORT_DEADLINE_S:.0f} s to import"
        return Check(name=library.name, level="warn", detail=detail, fix="Close other programs.")
    return Check(name=library.name, level="ok", detail=f"{library.name} {detail}")


def _printed(python: Path, script: str) -> list[str]:
    """Return the words that `script` prints."""
    completed = subprocess.run(
        [str(python), "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=IMPORT_DEADLINE_S,
    )
    return completed.stdout.split()


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
        detail=f"{free / 2**30:.1f} GiB free at {existing}",
        fix="" if enough else "Free at least 2 GiB, or set HILLCLIMB_STATE_DIR to another disk.",
    )
    if not path.exists():
        yield Check(name="state", level="ok", detail=f"{path} will be created by `hillclimb up`")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    private = mode & 0o077 == 0
    yield Check(
        name="state",
        level="ok" if private else "warn",
        detail=f"{path}, mode {mode:04o}",
        fix="" if private else f"Other users can open it, and it holds keys: `chmod 700 {path}`.",
    )
    secrets = StateDirectory(path).secrets_file
    if secrets.exists() and secrets.stat().st_mode & 0o077:
        fix = f"`chmod 600 {secrets}`, and create new keys if others use this machine."
        yield Check(name="secrets", level="fail", detail=f"other users can read {secrets}", fix=fix)


def _supervisor(options: StackOptions, record: StackRecord) -> Iterator[Check]:
    if record.supervisor is not None:
        yield Check(name="supervisor", level="ok", detail=f"running, pid {record.supervisor.pid}")
        return
    pids = [str(identity.pid) for identity, _ in owned_by(options.state_dir)]
    if pids:
        detail = f"processes without a supervisor: {', '.join(pids)}"
        fix = "`hillclimb up` adopts them, `hillclimb down` stops them."
        yield Check(name="supervisor", level="warn", detail=detail, fix=fix)
    elif options.state_dir.exists() and StateDirectory(options.state_dir).locked():
        fix = "Another `up` or `down` is running; wait for it."
        yield Check(
            name="supervisor", level="warn", detail="the state directory is locked", fix=fix
        )
    else:
        yield Check(name="supervisor", level="ok", detail="not running, nothing left over")


def _services(record: StackRecord) -> Iterator[Check]:
    """Yield the services that do not run or were started again; the runner is one of them."""
    if record.supervisor is None:
        return
    findings = [(name, _trouble(service)) for name, service in record.services.items()]
    for name, trouble in findings:
        if trouble:
            fix = f"See logs/{name}.log in the state directory."
            yield Check(name=f"service {name}", level="warn", detail=trouble, fix=fix)
    well = [name for name, trouble in findings if not trouble]
    if well:
        detail = f"running, never restarted: {', '.join(well)}"
        yield Check(name="services", level="ok", detail=detail)


def _trouble(service: ServiceRecord) -> str:
    """Say what is wrong with a service; empty for one that runs and was started once."""
    parts: list[str] = [] if service.state in RUNNING else [service.state]
    if service.restarts:
        times = "once" if service.restarts == 1 else f"{service.restarts} times"
        parts.append(f"restarted {times}" + (f": {service.last_exit}" if service.last_exit else ""))
    return ", ".join(parts)


def _ports(options: StackOptions, record: StackRecord) -> Iterator[Check]:
    if record.supervisor is not None:
        used = ", ".join(f"{name} {port}" for name, port in record.ports.items())
        yield Check(name="ports", level="ok", detail=used)
        return
    ports = {
        "api": options.api_port,
        "postgres": options.postgres_port,
        "valkey": options.valkey_port,
    }
    busy = [f"{name} {port}" for name, port in ports.items() if port and not is_free(port)]
    if busy:
        detail = f"in use: {', '.join(busy)}"
        fix = "Choose other ports, or none: free ones are chosen."
        yield Check(name="ports", level="fail", detail=detail, fix=fix)
    else:
        yield Check(name="ports", level="ok", detail="free ports are chosen at start")


def _database(options: StackOptions, record: StackRecord) -> Iterator[Check]:
    url = options.database_url or _own_database_url(options, record)
    if url is None:
        yield Check(name="database", level="ok", detail="not running")
        return
    migrated = CODE_ROOT / "migrations" / "versions"
    try:
        with psycopg.connect(url.replace("+psycopg", "", 1), connect_timeout=3) as connection:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        fix = "`hillclimb up` migrates it."
        yield Check(name="database", level="warn", detail="reachable, not migrated", fix=fix)
    except psycopg.Error as error:
        detail = str(error).strip().splitlines()[0] if str(error).strip() else "not reachable"
        fix = "See logs/postgres.log in the state directory, or DATABASE_URL."
        yield Check(name="database", level="fail", detail=detail, fix=fix)
    else:
        revision = str(row[0]) if row else "none"
        is_known = any(revision in file.name for file in migrated.glob("*.py"))
        yield Check(
            name="database",
            level="ok" if is_known else "warn",
            detail=f"reachable, at revision {revision}",
            fix=""
            if is_known
            else f"This code does not have that revision: {migrated} is older or newer.",
        )


def _broker(options: StackOptions, record: StackRecord) -> Iterator[Check]:
    """Yield whether the broker answers a PING with the password that the services use."""
    url = options.redis_url or _own_broker_url(options, record)
    if url is None:
        yield Check(name="broker", level="ok", detail="not running")
        return
    try:
        with redis.Redis.from_url(
            url,
            socket_timeout=BROKER_TIMEOUT_S,
            socket_connect_timeout=BROKER_TIMEOUT_S,
        ) as client:
            client.ping()
    except ValueError:  # its text may have a piece of the password
        yield Check(name="broker", level="fail", detail="no address of a server", fix=REDIS_FIX)
    except redis.RedisError as error:
        yield Check(name="broker", level="fail", detail=str(error), fix=REDIS_FIX)
    else:
        yield Check(name="broker", level="ok", detail="answers")


def _blobs(options: StackOptions) -> Iterator[Check]:
    """Yield whether checkpoints can be stored."""
    url = options.blobs_url or str(options.state_dir / "blobs")
    if options.blobs_url is None and not options.state_dir.exists():
        yield Check(name="blobs", level="ok", detail=f"{url} will be created by `hillclimb up`")
        return
    try:
        open_store(url, RetryPolicy(total_s=STORE_TIMEOUT_S, silence_s=STORE_TIMEOUT_S)).check()
    except StoreError as error:
        fix = "Runs would keep their checkpoints on the trainer's disk: see HILLCLIMB_BLOBS_URL."
        yield Check(name="blobs", level="fail", detail=str(error), fix=fix)
    else:
        yield Check(name="blobs", level="ok", detail=f"writable: {url.partition('?')[0]}")


def _runners(options: StackOptions, record: StackRecord) -> Iterator[Check]:
    """Yield how many runners keep their lease, if the service and its database run."""
    present = reporting_runners(options, record)
    if present is None:  # `database` has said why
        return
    if present:
        yield Check(name="runners", level="ok", detail=f"report: {', '.join(present)}")
    else:
        fix = "Runs wait for one: see logs/runner.log in the state directory."
        yield Check(name="runners", level="warn", detail="none reports", fix=fix)


def reporting_runners(options: StackOptions, record: StackRecord) -> tuple[str, ...] | None:
    """Return the names of the runners that keep their lease; None where nobody can be asked."""
    url = options.database_url or _own_database_url(options, record)
    if record.supervisor is None or url is None:
        return None
    query = "SELECT name FROM runners WHERE lease_until >= now() ORDER BY name"
    try:
        with psycopg.connect(url.replace("+psycopg", "", 1), connect_timeout=3) as connection:
            return tuple(str(name) for (name,) in connection.execute(query).fetchall())
    except psycopg.Error:
        return None


def _service(record: StackRecord) -> Iterator[Check]:
    """Yield the running service's own warnings; nothing if none runs."""
    if record.supervisor is None or record.url is None:
        return
    ready = f"{record.url}/v1/health/ready"
    try:
        answer = httpx.get(ready, timeout=SERVICE_TIMEOUT_S, trust_env=False).raise_for_status()
        warnings = answer.json().get("warnings", [])
    except (httpx.HTTPError, ValueError) as error:
        fix = "See logs/api.log in the state directory."
        yield Check(name="service", level="fail", detail=str(error), fix=fix)
        return
    if not warnings:
        yield Check(name="service", level="ok", detail="no warnings")
    for warning in warnings:
        detail, _, fix = warning.partition(". ")
        yield Check(name="service", level="warn", detail=detail, fix=fix)


def _own_broker_url(options: StackOptions, record: StackRecord) -> str | None:
    service = record.services.get("valkey")
    credentials = load_credentials(StateDirectory(options.state_dir))
    if service is None or service.process is None or credentials is None:
        return None
    server = ValkeyServer(
        directory=options.state_dir / "valkey",
        port=record.ports["valkey"],
        password=credentials.valkey_password,
    )
    return server.url


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
