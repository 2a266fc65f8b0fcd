"""Climbs a ladder of checks: in order, each within its time, until the first that fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hillclimb.process.redactor import Redactor

MAX_SEEN = 500
"""Characters of what a check saw."""
CLEANUP_S = 60.0
"""Deadline of removing what a ladder made."""


class CheckFailed(Exception):
    """A check saw something else than it should; `remedy` is a sentence for the user."""

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(seen)
        self.seen, self.remedy = seen, remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceCheck:
    """One small real check: `act` returns what was seen, or raises CheckFailed."""

    name: str
    act: Callable[[], Awaitable[str]]
    limit_s: float
    late: str
    """The remedy where it does not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckObservation:
    """The result of one check."""

    name: str
    passed: bool
    seen: str
    seconds: float
    remedy: str = ""


class Ladder(Protocol):
    """The checks of one target over one connection."""

    @property
    def checks(self) -> Sequence[AcceptanceCheck]:
        """The checks, in order."""
        ...

    async def close(self) -> None:
        """Remove what the checks made, also after a failure; may raise any error."""
        ...


async def climb(
    ladder: Ladder,
    redactor: Redactor,
    report: Callable[[CheckObservation], object] = lambda _: None,
    begin: Callable[[AcceptanceCheck], object] = lambda _: None,
) -> tuple[CheckObservation, ...]:
    """Return what each check saw, up to the first that failed; `report` gets each at once.

    `begin` gets each check before it acts.

    What the ladder made is removed in any case. Neither `seen` nor `remedy` has a secret that the
    redactor knows.
    """
    observations: list[CheckObservation] = []
    try:
        for check in ladder.checks:
            begin(check)
            observation = _redacted(await _observe(check), redactor)
            observations.append(observation)
            report(observation)
            if not observation.passed:
                break
    finally:
        await asyncio.wait_for(ladder.close(), CLEANUP_S)
    return tuple(observations)


async def _observe(check: AcceptanceCheck) -> CheckObservation:
    started = time.monotonic()
    passed, remedy = True, ""
    try:
        seen = await asyncio.wait_for(check.act(), check.limit_s)
    except CheckFailed as failure:
        passed, seen, remedy = False, failure.seen, failure.remedy
    except TimeoutError:
        passed, seen, remedy = False, f"no end within {check.limit_s:g} s", check.late
    return CheckObservation(
        name=check.name,
        passed=passed,
        seen=seen[:MAX_SEEN],
        seconds=round(time.monotonic() - started, 3),
        remedy=remedy[:MAX_SEEN],
    )


def _redacted(observation: CheckObservation, redactor: Redactor) -> CheckObservation:
    return CheckObservation(
        name=observation.name,
        passed=observation.passed,
        seen=redactor.text(observation.seen),
        seconds=observation.seconds,
        remedy=redactor.text(observation.remedy),
    )
