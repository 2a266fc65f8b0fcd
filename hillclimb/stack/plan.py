"""Plan of a start of the stack: ports, keys, servers and environment variables of services."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.process.network.addresses import OWN_MACHINE, PRIVATE_HOSTS
from hillclimb.stack.errors import StackError
from hillclimb.stack.options import PREFERRED_API_PORT, StackOptions
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.servers.sky import SkyServer, client_environment, find_sky_port, queue_port
from hillclimb.stack.servers.valkey import ValkeyServer
from hillclimb.stack.state.credentials import Credentials, ensure_credentials
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import StackRecord
from hillclimb.stack.system.cloud_keys import cloud_keys
from hillclimb.stack.system.ports import CHOSEN, LOOPBACK, find_free, is_free

# Read by services and handed through, so that a changed value replaces an adopted process.
PASSED_THROUGH = (
    "SLACK_BOT_TOKEN",
    "SLACK_SIGNING_SECRET",
    "SLACK_APP_TOKEN",
    "SLACK_API_BASE_URL",
    "HILLCLIMB_SLACK_CHANNEL",
    "HILLCLIMB_MASTER_KEYS",
    "HILLCLIMB_WEBHOOK_LOOPBACK",
    "HILLCLIMB_OIDC_ISSUER",
    "HILLCLIMB_OIDC_CLIENT_ID",
    "HILLCLIMB_OIDC_CLIENT_SECRET",
    "HILLCLIMB_REQUESTS_PER_MINUTE",
    "HILLCLIMB_WRONG_KEYS_PER_MINUTE",
    "FORWARDED_ALLOW_IPS",
    "HILLCLIMB_DATASET_SOURCES",
    "HILLCLIMB_RUN_SOURCES",
    "HILLCLIMB_RUN_SECRET_HOSTS",
    PRIVATE_HOSTS,
    "HILLCLIMB_SLACK_CHANNELS",
    "HILLCLIMB_DATASET_MAX_MB",
    "HILLCLIMB_DATASET_UNPACKED_MB",
    "HILLCLIMB_DATASET_MEMORY_MB",
    "HILLCLIMB_DATASET_DEADLINE_S",
    "HILLCLIMB_ABANDON_CLUSTERS",
    "HILLCLIMB_KEEP_TRAJECTORIES_DAYS",
    "HILLCLIMB_KEEP_TOKEN_VALUES_DAYS",
    "HILLCLIMB_KEEP_METRICS_DAYS",
    "HILLCLIMB_KEEP_RUNS_DAYS",
)
POOLS = {"HILLCLIMB_DB_POOL": 40, "HILLCLIMB_DB_WORKER_POOL": 5}
"""Connections of each API process, and of each process of a worker, unless the variables say
otherwise; the stack's own PostgreSQL allows what they add up to."""
BESIDE_POOL = 3
"""Connections of an API process that are none of its pool."""
WORKER_PROCESSES = 6
"""The worker's, four of the worker for clusters, Slack's."""
OTHER_CONNECTIONS = 20
"""For migrations, the supervisor, people, and what PostgreSQL reserves."""
OWN_FILES = "file:///"
"""Specs of an embedded stack may name any file of its machine but those of the stack itself: who
submits them is the person who started it."""
CLOUDS_PASSED_THROUGH = (
    "HILLCLIMB_CLOUDS",
    "HILLCLIMB_WHEEL",
    "HILLCLIMB_NODE_API_URL",
    "HILLCLIMB_NODE_BLOBS_URL",
    "HILLCLIMB_NODE_SECRETS",
    "HILLCLIMB_NODE_IMAGES",
    "HILLCLIMB_REAP_DRY_RUN",
)
"""Variables for the API and the workers, if clusters are rented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """Plan of one start of the stack; `postgres` or `valkey` is None if an external one is used.

    `clouds` are further variables for the API and the workers, but not for trainers; `owner` is one
    for migrations alone, the database as the owner of the tables.
    """

    options: StackOptions
    state: StateDirectory
    ports: dict[str, int]
    postgres: PostgresServer | None
    valkey: ValkeyServer | None
    sky: SkyServer | None = None
    environment: Mapping[str, str]
    clouds: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, str] = field(default_factory=dict)

    @property
    def api_port(self) -> int:
        """The API's port on 127.0.0.1."""
        return self.ports["api"]

    @property
    def all_ports(self) -> tuple[int, ...]:
        """Every port on 127.0.0.1 that a server of this stack listens on."""
        queue = () if self.sky is None else (queue_port(self.sky.port),)
        return (*self.ports.values(), *queue)


def make_plan(options: StackOptions) -> StackPlan:
    """Choose ports, load or create keys, and compose the services' environment variables.

    Raises StackError when a requested port is in use by another process.
    """
    state = StateDirectory(options.state_dir)
    state.create()
    credentials = ensure_credentials(state)
    pools = {name: _whole_number(name, usual) for name, usual in POOLS.items()}
    ports = choose_ports(options, state.read())
    postgres, valkey = None, None
    if options.database_url is None:
        postgres = PostgresServer(
            directory=state.path / "pg",
            port=ports["postgres"],
            password=credentials.postgres_password,
            settings={"max_connections": str(_max_connections(options.api_processes, pools))},
        )
    if options.redis_url is None:
        valkey = ValkeyServer(
            directory=state.path / "valkey",
            port=ports["valkey"],
            password=credentials.valkey_password,
        )
    sky, sky_url = None, options.sky_url
    if options.with_sky:
        sky = SkyServer(
            directory=state.path / "sky",
            port=ports["sky-api"],
            origin=Path.home(),
            keys=cloud_keys(os.environ),
        )
        sky_url = sky.url
    urls = {
        "DATABASE_URL": postgres.service_url() if postgres else str(options.database_url),
        "REDIS_URL": valkey.url if valkey else str(options.redis_url),
    }
    return StackPlan(
        options=options,
        state=state,
        ports=ports,
        postgres=postgres,
        valkey=valkey,
        sky=sky,
        owner={"HILLCLIMB_OWNER_DATABASE_URL": postgres.url()} if postgres else {},
        clouds=_clouds_environment(sky_url, state.path / "sky" / "client"),
        environment={
            **urls,
            **_service_environment(options, credentials, ports["api"]),
            **{name: str(number) for name, number in pools.items()},
        },
    )


def _clouds_environment(sky_url: str | None, client: Path) -> dict[str, str]:
    """Return the variables for renting clusters; empty if the stack rents none."""
    passed = {name: os.environ[name] for name in CLOUDS_PASSED_THROUGH if os.environ.get(name)}
    if sky_url:
        passed = {"HILLCLIMB_CLOUDS": "skypilot"} | passed | client_environment(sky_url, client)
    if "HILLCLIMB_CLOUDS" not in passed:
        return {}
    named = re.split(r"[\s,]+", passed.get("HILLCLIMB_NODE_SECRETS", ""))
    return passed | {name: os.environ[name] for name in named if os.environ.get(name)}


def _whole_number(name: str, usual: int) -> int:
    text = os.environ.get(name) or str(usual)
    if not text.isdecimal():
        raise StackError(f"{name} must be a whole number, not {text!r}.")
    return int(text)


def _max_connections(api_processes: int, pools: Mapping[str, int]) -> int:
    """Return how many connections the stack's own PostgreSQL has to allow."""
    api = api_processes * (pools["HILLCLIMB_DB_POOL"] + BESIDE_POOL)
    workers = WORKER_PROCESSES * pools["HILLCLIMB_DB_WORKER_POOL"]
    return api + workers + OTHER_CONNECTIONS


def choose_ports(options: StackOptions, record: StackRecord) -> dict[str, int]:
    """Return a port per server: the requested one, else the previous one if free or still ours."""
    requested = {"api": options.api_port}
    if options.database_url is None:
        requested["postgres"] = options.postgres_port
    if options.redis_url is None:
        requested["valkey"] = options.valkey_port
    if options.with_sky:
        requested["sky-api"] = options.sky_port
    chosen: dict[str, int] = {}
    for name, port in requested.items():
        others = {*chosen.values(), *filter(None, requested.values())}
        chosen[name] = _choose(name, port, record, excluded=others)
    return chosen


def _choose(
    name: str, requested: int | None, record: StackRecord, *, excluded: Collection[int]
) -> int:
    remembered = record.ports.get(name)
    process = record.services[name].process if name in record.services else None
    ours = process is not None and process.identity.alive()
    if requested:
        if not is_free(requested) and not (ours and requested == remembered):
            raise StackError(
                f"Port {requested} for {name} is in use; choose another one, or 0 for any free one."
            )
        return requested
    if ours and remembered is not None:
        return remembered
    if name != "api" and remembered not in CHOSEN:
        remembered = None  # of an earlier version: the kernel may give it to anybody
    if name == "sky-api":
        return find_sky_port(preferred=remembered, excluded=excluded)
    usual = PREFERRED_API_PORT if name == "api" and requested is None else None
    return find_free(preferred=remembered or usual, excluded=excluded)


def _service_environment(
    options: StackOptions, credentials: Credentials, api_port: int
) -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED_THROUGH if os.environ.get(name)}
    return (
        {"HILLCLIMB_RUN_SOURCES": OWN_FILES, PRIVATE_HOSTS: OWN_MACHINE}
        | passed
        | {
            "HILLCLIMB_STATE_DIR": str(options.state_dir),
            "HILLCLIMB_BLOBS_URL": options.blobs_url or str(options.state_dir / "blobs"),
            "HILLCLIMB_API_URL": f"http://{LOOPBACK}:{api_port}",
            "HILLCLIMB_API_PROCESSES": str(options.api_processes),
            "HILLCLIMB_SECRET_KEY": credentials.secret_key,
            "HILLCLIMB_RUNNER_TOKEN": credentials.runner_token,
            "HILLCLIMB_BOOTSTRAP_KEY": credentials.api_key,
            "HILLCLIMB_TRAINER_PYTHON": str(options.find_trainer_python()),
            "PYTHONUNBUFFERED": "1",
        }
    )
