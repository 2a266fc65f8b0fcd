"""Check of the platform before a run, and deletion of leftover instances after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from hillclimb.environment.deadline import within
from hillclimb.process.launcher import has_ended
from hillclimb.protocol.rundir import AttemptDir, attempt_name, run_tags
from hillclimb.spec.run import RunSpec
from trainer.envs.fleet.choice import account_of, lease_options_of
from trainer.envs.fleet.instances.instances import delete_all
from trainer.envs.fleet.instances.limiter import Limiter
from trainer.envs.fleet.wire.api import FleetAccount, FleetApi
from trainer.envs.fleet.wire.faults import ODD, REDIRECT, WireFault
from trainer.envs.fleet.wire.retry import CallRetry, Meter
from trainer.errors import EnvironmentOutage, SpecError

CHECK_S = 20.0
SWEEP_S = 20.0
"""Timeout of a sweep at the end of an attempt; instances left then end without heartbeats."""
OPERATION_S = 10.0
NUM_EARLIER = 3
"""Attempts before its own that a trainer sweeps; what is left of older ones has long expired."""
_log = logging.getLogger(__name__)


async def sweep(account: FleetAccount, tags: Sequence[str]) -> int:
    """Delete the instances with these tags; return their number.

    Raises:
        WireFault: some are left, or the platform does not answer.
    """
    api, num_swept = FleetApi(account), 0
    try:
        with within(SWEEP_S):
            for tag in tags:
                num_swept += await delete_all(api, tag, _call_retry())
    finally:
        await api.close()
    return num_swept


async def delete_earlier(api: FleetApi, run_id: str, attempt: int) -> None:
    """Delete what the run's last few attempts left, before this one creates its own.

    Their runner may be gone, or may not have swept again yet. A failure is only logged: it says
    nothing about the attempt that begins.
    """
    for number in range(max(1, attempt - NUM_EARLIER), attempt):
        for tag in run_tags(run_id, number):
            try:
                with within(OPERATION_S):
                    await _call_retry().call("a deletion", partial(api.delete_run, tag))
            except WireFault as fault:
                _log.warning("instances of %s may be left: %s", tag, fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSweep:
    """Result of a sweep."""

    num_deleted: int
    skipped: tuple[int, ...]
    """Attempts that still run, or without a record of their end."""


def sweep_run(run_dir: Path, attempt: int | None, environ: Mapping[str, str]) -> InstanceSweep:
    """Delete leftover instances of a run's ended attempts, or of one attempt in any state.

    Raises:
        SpecError: the spec cannot be read, or there is no key.
        WireFault: some are left, or the platform does not answer.
    """
    num_swept, skipped = 0, []
    for number in [attempt] if attempt is not None else _attempts(run_dir):
        where = AttemptDir(run_dir, number)
        spec = _spec(where.spec)
        if spec is None or spec.environment.provider != "fleet":
            continue
        if attempt is None and not has_ended(where):
            skipped.append(number)
            continue
        tags = run_tags(run_dir.name, number)
        num_swept += asyncio.run(sweep(account_of(spec, environ), tags))
    return InstanceSweep(num_deleted=num_swept, skipped=tuple(skipped))


async def check_platform(
    spec: RunSpec, environ: Mapping[str, str] | None = None, *, own: AttemptDir | None = None
) -> None:
    """Check that the platform responds and accepts the key, before anything is loaded for it.

    What earlier attempts than `own` left there is deleted.

    Raises:
        SpecError: it refuses the key, or is no platform of Fleet's API.
        EnvironmentOutage: it does not respond, or refuses the request for the account.
    """
    account = account_of(spec, environ)
    operation_s = lease_options_of(spec, "check").operation_s
    api = FleetApi(account)
    try:
        with within(CHECK_S):
            await _call_retry(operation_s).call("the account", api.me)
        if own is not None:
            await delete_earlier(api, own.run_dir.name, own.attempt)
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
        if fault.status is not None:
            raise EnvironmentOutage(
                f"{account.base_url} answers the request for the account (GET /v1/account) with"
                f" {fault}"
            ) from fault
        raise EnvironmentOutage(f"{account.base_url} does not answer: {fault}") from fault
    finally:
        await api.close()


def _call_retry(operation_s: float = OPERATION_S) -> CallRetry:
    return CallRetry(operation_s=operation_s, meter=Meter(), load=Limiter(1))


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
