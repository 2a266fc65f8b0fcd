"""Trying again within the time that is left: exponential backoff with jitter.

Each try is bounded by the operation's own deadline and by what remains of the caller's, whichever
is shorter. There is no count of tries: the outer deadline decides. When it leaves no room for
another try the fault itself is raised, so that the outcome names the cause and not the deadline.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from trainer.envs.deadline import remaining_s, within
from trainer.envs.fleet.faults import Refused, WireFault, of_timeout, of_unknown

T = TypeVar("T")

FIRST_S, FACTOR, LONGEST_S = 0.2, 2.0, 5.0
"""Pauses between tries, before jitter takes up to half of them (seconds)."""
PATIENCE_S = 90.0
"""How long is tried where no caller sets a deadline, and only there; as long as Fleet's own client
gives a call."""
LEAST_S = 0.05
"""A try shorter than this is not begun."""
IDLE_S = 4.0
"""An idle connection is used again for so long: servers close theirs after five seconds and more,
and a request that meets a closing connection may or may not have been carried out."""
LATE_S = 0.25
"""A timer later than this tells of a loop that was blocked, as by an engine that computes in it."""
_log = logging.getLogger(__name__)


class Load(Protocol):
    """Who is told how the server copes."""

    def went_well(self) -> None:
        """Hear that an operation was answered."""
        ...

    def overloaded(self, fault: WireFault) -> None:
        """Hear of a timeout, or of a limit that was met."""
        ...


@dataclass(slots=True)
class Meter:
    """What an episode took; `unknown` counts faults of classes that nothing foresaw."""

    counts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def count(self, name: str) -> None:
        """Count one."""
        self.counts[name] += 1


@dataclass(slots=True, kw_only=True)
class Persistence:
    """Tries the operations of one episode until they work."""

    operation_s: float
    """Longest single try (seconds)."""
    meter: Meter
    load: Load
    rng: random.Random = field(default_factory=random.Random)

    async def insist(
        self,
        what: str,
        operation: Callable[[], Awaitable[T]],
        *,
        may_repeat: Callable[[WireFault], bool] = lambda _: True,
        at_most_s: float | None = None,
    ) -> T:
        """Return what `operation` returns, tried again while its faults are worth it.

        `at_most_s`: longest single try, where it is not `operation_s`.

        Raises:
            WireFault: the fault is not transient, `may_repeat` forbids another try, or no time is
                left for one.
        """
        pause = FIRST_S
        with within(PATIENCE_S if math.isinf(remaining_s()) else math.inf):
            while True:
                try:
                    result = await self._once(what, operation, at_most_s or self.operation_s)
                except WireFault as fault:
                    wait = self._note(what, fault, pause)
                    if not fault.is_transient or not may_repeat(fault):
                        raise
                    if wait + LEAST_S >= remaining_s():
                        raise
                    await asyncio.sleep(wait)
                    self.meter.count("retries")
                    pause = min(pause * FACTOR, LONGEST_S)
                else:
                    self.load.went_well()
                    return result

    async def _once(self, what: str, operation: Callable[[], Awaitable[T]], at_most_s: float) -> T:
        seconds = max(min(at_most_s, remaining_s()), LEAST_S)
        try:
            async with _bounded(seconds) as deadline:
                return await operation()
        except TimeoutError as late:
            if deadline.expired():
                raise of_timeout(what, seconds) from late
            raise of_unknown(late) from late
        except (WireFault, Refused):
            raise
        except Exception as error:
            raise of_unknown(error) from error

    def _note(self, what: str, fault: WireFault, pause: float) -> float:
        """Count a fault, tell the limiter, and return how long to wait before the next try."""
        if fault.is_overload:
            self.meter.count("timeouts" if fault.kind == "timeout" else "limits")
            self.load.overloaded(fault)
        if not fault.is_known:
            self.meter.unknown[fault.kind] += 1
            _log.warning("%s: nothing foresaw %s\n%s", what, fault, _where(fault))
        asked = fault.retry_after_s or 0.0
        return max(asked, pause * self.rng.uniform(0.5, 1.0))


def _where(fault: WireFault) -> str:
    """Return where it came from: our own reading of an answer, say. Words could be secret."""
    cause = fault.__cause__
    return "".join(traceback.format_tb(cause.__traceback__)) if cause else ""


@asynccontextmanager
async def _bounded(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Bound what is in the block; after a loop that was blocked, what came in meanwhile goes first.

    Else the timer, due together with the answer, would turn each long computation into a timeout.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as deadline:

        def check() -> None:
            nonlocal due, timer
            now = loop.time()
            if now - due > LATE_S:
                due = now + LATE_S
                timer = loop.call_at(due, check)
            else:
                deadline.reschedule(now)

        timer = loop.call_at(due, check)
        try:
            yield deadline
        finally:
            timer.cancel()
