"""What to do around a run: look whether the platform answers before it, leave nothing after it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from trainer.contract.rundir import AttemptDir, attempt_name, run_tags
from trainer.contract.spec import RunSpec
from trainer.envs.deadline import within
from trainer.envs.fleet.api import Account, FleetApi
from trainer.envs.fleet.choice import account_of, terms_of
from trainer.envs.fleet.faults import ODD, REDIRECT, WireFault
from trainer.envs.fleet.instances import delete_all
from trainer.envs.fleet.limiter import Limiter
from trainer.envs.fleet.persistence import Meter, Persistence
from trainer.errors import EnvironmentOutage, SpecError
from trainer.handover.launch import has_ended

CHECK_S = 20.0
SWEEP_S = 20.0
"""The end of an attempt waits for this; what is not swept sends no heartbeat and ends by itself."""
OPERATION_S = 10.0


async def sweep(account: Account, tags: Sequence[str]) -> int:
    """Delete the instances that carry these tags; return how many there were.

    Raises:
        WireFault: some are left, or the platform does not answer.
    """
    api, num_swept = FleetApi(account), 0
    try:
        with within(SWEEP_S):
            for tag in tags:
                num_swept += await delete_all(api, tag, _patient())
    finally:
        await api.close()
    return num_swept


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep of a run did."""

    num_deleted: int
    left_alone: tuple[int, ...]
    """Attempts that still run, or of which nothing says that they ended."""


def sweep_run(run_dir: Path, attempt: int | None, environ: Mapping[str, str]) -> Swept:
    """Delete what the attempts of a run left that have ended, or one of them, however it is.

    Raises:
        SpecError: the spec cannot be read, or there is no key.
        WireFault: some are left, or the platform does not answer.
    """
    num_swept, left_alone = 0, []
    for number in [attempt] if attempt is not None else _attempts(run_dir):
        where = AttemptDir(run_dir, number)
        spec = _spec(where.spec)
        if spec is None or spec.environment.provider != "fleet":
            continue
        if attempt is None and not has_ended(where):
            left_alone.append(number)
            continue
        tags = run_tags(run_dir.name, number)
        num_swept += asyncio.run(sweep(account_of(spec, environ), tags))
    return Swept(num_deleted=num_swept, left_alone=tuple(left_alone))


async def check_platform(spec: RunSpec, environ: Mapping[str, str] | None = None) -> None:
    """Look whether the platform answers and takes our key, before anything is loaded for it.

    Raises:
        SpecError: it refuses the key, or is not to be asked.
        EnvironmentOutage: it does not answer.
    """
    account = account_of(spec, environ)
    operation_s = terms_of(spec, "check").operation_s
    api = FleetApi(account)
    try:
        with within(CHECK_S):
            await _patient(operation_s).insist("the account", api.me)
    except WireFault as fault:
        if fault.status in (401, 403):
            raise SpecError(
                f"{account.base_url} refuses the key in FLEET_API_KEY: {fault}"
            ) from fault
        if fault.kind in (ODD, REDIRECT):
            raise SpecError(
                f"{account.base_url} is no platform of Fleet's contract ({fault}): check"
                " environment.fleet.base_url, or FLEET_BASE_URL of the runner"
            ) from fault
        raise EnvironmentOutage(f"{account.base_url} does not answer: {fault}") from fault
    finally:
        await api.close()


def _patient(operation_s: float = OPERATION_S) -> Persistence:
    return Persistence(operation_s=operation_s, meter=Meter(), load=Limiter(1))


def _attempts(run_dir: Path) -> list[int]:
    prefix = attempt_name(0).removesuffix("0")
    names = (path.name.removeprefix(prefix) for path in run_dir.glob(f"{prefix}*"))
    return sorted(int(name) for name in names if name.isdigit())


def _spec(path: Path) -> RunSpec | None:
    """Read an attempt's spec; None where it has none."""
    try:
        return RunSpec.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise SpecError(f"the spec at {path} cannot be read: {error}") from error
