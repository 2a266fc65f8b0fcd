"""Options of the embedded stack, from flags or environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hillclimb.stack.errors import StackError
from hillclimb.stack.servers.sky import ENDPOINT_VARIABLE
from hillclimb.stack.state.directory import find_state_directory

# The checkout (or installation) whose services are run.
CODE_ROOT = Path(__file__).resolve().parents[2]

PREFERRED_API_PORT = 8710
RUNNER_STOP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """Options of the stack in one state directory.

    For a port of None or 0 one is chosen: the previous one if free, else 8710 for the API (not with
    0), else a free one from 20000 to 29999. With `database_url` or `redis_url` the stack uses that
    server and starts none of its own. `with_sky` also starts SkyPilot's API server, on `sky_port`;
    `sky_url` is one that runs elsewhere. `api_processes` processes serve the API's port.
    `runner_stop_s` is the time in which the runner may checkpoint and stop its trainers.
    """

    state_dir: Path
    api_port: int | None = None
    api_processes: int = 1
    postgres_port: int | None = None
    valkey_port: int | None = None
    database_url: str | None = None
    redis_url: str | None = None
    with_sky: bool = False
    sky_port: int | None = None
    sky_url: str | None = None
    blobs_url: str | None = None
    trainer_python: Path | None = None
    runner_stop_s: float = RUNNER_STOP_S

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], cwd: Path) -> "StackOptions":
        """Return the options from environment variables; see `as_environment` for their names.

        Raises StackError for an invalid value.
        """
        python = environment.get("HILLCLIMB_TRAINER_PYTHON")
        database_url = environment.get("DATABASE_URL") or None
        if database_url is not None and not database_url.startswith("postgresql+psycopg://"):
            raise StackError("DATABASE_URL must start with postgresql+psycopg:// .")
        return cls(
            state_dir=find_state_directory(environment, cwd),
            api_port=_number(environment, "HILLCLIMB_API_PORT"),
            api_processes=_number(environment, "HILLCLIMB_API_PROCESSES") or 1,
            postgres_port=_number(environment, "HILLCLIMB_POSTGRES_PORT"),
            valkey_port=_number(environment, "HILLCLIMB_VALKEY_PORT"),
            database_url=database_url,
            redis_url=environment.get("REDIS_URL") or None,
            with_sky=_yes(environment, "HILLCLIMB_WITH_SKY"),
            sky_port=_number(environment, "HILLCLIMB_SKY_PORT"),
            sky_url=environment.get(ENDPOINT_VARIABLE) or None,
            blobs_url=environment.get("HILLCLIMB_BLOBS_URL") or None,
            trainer_python=Path(python) if python else None,
            runner_stop_s=_number(environment, "HILLCLIMB_RUNNER_STOP_S") or RUNNER_STOP_S,
        )

    def as_environment(self) -> dict[str, str]:
        """Return the variables from which `from_environment` restores these options."""
        values = {
            "HILLCLIMB_STATE_DIR": self.state_dir,
            "HILLCLIMB_API_PORT": self.api_port,
            "HILLCLIMB_API_PROCESSES": self.api_processes,
            "HILLCLIMB_POSTGRES_PORT": self.postgres_port,
            "HILLCLIMB_VALKEY_PORT": self.valkey_port,
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "HILLCLIMB_WITH_SKY": "1" if self.with_sky else None,
            "HILLCLIMB_SKY_PORT": self.sky_port,
            ENDPOINT_VARIABLE: self.sky_url,
            "HILLCLIMB_BLOBS_URL": self.blobs_url,
            "HILLCLIMB_TRAINER_PYTHON": self.trainer_python,
            "HILLCLIMB_RUNNER_STOP_S": int(self.runner_stop_s),
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    def find_trainer_python(self) -> Path:
        """Return the data plane's interpreter: as set, else `.venv-trainer` of code or project."""
        if self.trainer_python is not None:
            return self.trainer_python
        places = [root / ".venv-trainer/bin/python" for root in (CODE_ROOT, self.state_dir.parent)]
        return next((place for place in places if place.exists()), places[0])


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if not text:
        return None
    if not text.isdecimal():
        raise StackError(f"{name} must be a whole number, not {text!r}.")
    return int(text)


def _yes(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "")
    if text not in ("", "0", "1"):
        raise StackError(f"{name} must be 0 or 1, not {text!r}.")
    return text == "1"
