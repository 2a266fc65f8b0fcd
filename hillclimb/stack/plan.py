"""From options to everything the services need to know: ports, keys and environment variables."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.stack.credentials import Credentials, ensure_credentials
from hillclimb.stack.errors import StackError
from hillclimb.stack.options import PREFERRED_API_PORT, StackOptions
from hillclimb.stack.ports import LOOPBACK, find_free, is_free
from hillclimb.stack.postgres import PostgresServer
from hillclimb.stack.records import StackRecord
from hillclimb.stack.sky import SkyServer, client_environment, find_sky_port
from hillclimb.stack.state import StateDirectory
from hillclimb.stack.valkey import ValkeyServer

# Read by services and handed through, so that a changed value replaces an adopted process.
PASSED_THROUGH = (
    "SLACK_BOT_TOKEN",
    "SLACK_API_BASE_URL",
    "HILLCLIMB_DATASET_SOURCES",
    "HILLCLIMB_DATASET_MAX_MB",
    "HILLCLIMB_DATASET_UNPACKED_MB",
    "HILLCLIMB_DATASET_MEMORY_MB",
    "HILLCLIMB_DATASET_DEADLINE_S",
    "HILLCLIMB_ABANDON_CLUSTERS",
)
CLOUDS_PASSED_THROUGH = (
    "HILLCLIMB_CLOUDS",
    "HILLCLIMB_WHEEL",
    "HILLCLIMB_NODE_API_URL",
    "HILLCLIMB_NODE_BLOBS_URL",
    "HILLCLIMB_NODE_SECRETS",
    "HILLCLIMB_REAP_DRY_RUN",
)
"""Read by the API and by the workers where clusters are rented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """One start of the stack; `postgres` or `valkey` is None where an external server is used.

    `clouds` is what the API and the worker are told besides `environment`, and no trainer.
    """

    options: StackOptions
    state: StateDirectory
    ports: dict[str, int]
    postgres: PostgresServer | None
    valkey: ValkeyServer | None
    sky: SkyServer | None = None
    environment: Mapping[str, str]
    clouds: Mapping[str, str] = field(default_factory=dict)

    @property
    def api_port(self) -> int:
        """The API's port on 127.0.0.1."""
        return self.ports["api"]


def make_plan(options: StackOptions) -> StackPlan:
    """Choose ports, load or make keys, and compose what every service gets in its environment.

    Raises StackError when a port that was asked for is taken by someone else.
    """
    state = StateDirectory(options.state_dir)
    state.create()
    credentials = ensure_credentials(state)
    ports = choose_ports(options, state.read())
    postgres, valkey = None, None
    if options.database_url is None:
        postgres = PostgresServer(
            directory=state.path / "pg",
            port=ports["postgres"],
            password=credentials.postgres_password,
        )
    if options.redis_url is None:
        valkey = ValkeyServer(
            directory=state.path / "valkey",
            port=ports["valkey"],
            password=credentials.valkey_password,
        )
    sky, sky_url = None, options.sky_url
    if options.with_sky:
        sky = SkyServer(directory=state.path / "sky", port=ports["sky-api"], origin=Path.home())
        sky_url = sky.url
    urls = {
        "DATABASE_URL": postgres.url() if postgres else str(options.database_url),
        "REDIS_URL": valkey.url if valkey else str(options.redis_url),
    }
    return StackPlan(
        options=options,
        state=state,
        ports=ports,
        postgres=postgres,
        valkey=valkey,
        sky=sky,
        clouds=_clouds_environment(sky_url, state.path / "sky" / "client"),
        environment={**urls, **_service_environment(options, credentials, ports["api"])},
    )


def _clouds_environment(sky_url: str | None, client: Path) -> dict[str, str]:
    """Variables of those who rent clusters; none where nobody does."""
    passed = {name: os.environ[name] for name in CLOUDS_PASSED_THROUGH if os.environ.get(name)}
    if sky_url:
        passed = {"HILLCLIMB_CLOUDS": "skypilot"} | passed | client_environment(sky_url, client)
    if "HILLCLIMB_CLOUDS" not in passed:
        return {}
    named = re.split(r"[\s,]+", passed.get("HILLCLIMB_NODE_SECRETS", ""))
    return passed | {name: os.environ[name] for name in named if os.environ.get(name)}


def choose_ports(options: StackOptions, record: StackRecord) -> dict[str, int]:
    """A port per server: the one asked for, else the remembered one if free or still ours."""
    wanted = {"api": options.api_port}
    if options.database_url is None:
        wanted["postgres"] = options.postgres_port
    if options.redis_url is None:
        wanted["valkey"] = options.valkey_port
    if options.with_sky:
        wanted["sky-api"] = options.sky_port
    chosen: dict[str, int] = {}
    for name, port in wanted.items():
        chosen[name] = _choose(name, port, record, taken=chosen.values())
    return chosen


def _choose(name: str, wanted: int | None, record: StackRecord, *, taken: Collection[int]) -> int:
    remembered = record.ports.get(name)
    process = record.services[name].process if name in record.services else None
    ours = process is not None and process.identity.alive()
    if wanted:
        if not is_free(wanted) and not (ours and wanted == remembered):
            raise StackError(
                f"Port {wanted} for {name} is taken; choose another one, or 0 for any free one."
            )
        return wanted
    if ours and remembered is not None:
        return remembered
    if name == "sky-api":
        return find_sky_port(preferred=remembered, taken=taken)
    usual = PREFERRED_API_PORT if name == "api" and wanted is None else None
    return find_free(preferred=remembered or usual, taken=taken)


def _service_environment(
    options: StackOptions, credentials: Credentials, api_port: int
) -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED_THROUGH if os.environ.get(name)}
    return passed | {
        "HILLCLIMB_STATE_DIR": str(options.state_dir),
        "HILLCLIMB_BLOBS_URL": options.blobs_url or str(options.state_dir / "blobs"),
        "HILLCLIMB_API_URL": f"http://{LOOPBACK}:{api_port}",
        "HILLCLIMB_SECRET_KEY": credentials.secret_key,
        "HILLCLIMB_RUNNER_TOKEN": credentials.runner_token,
        "HILLCLIMB_BOOTSTRAP_KEY": credentials.api_key,
        "HILLCLIMB_TRAINER_PYTHON": str(options.find_trainer_python()),
        "PYTHONUNBUFFERED": "1",
    }
