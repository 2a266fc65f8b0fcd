"""Retries of Fleet's operations within the remaining time: exponential back-off with jitter.

Each attempt is bounded by the operation's own timeout and by what remains of the caller's deadline,
whichever is shorter. Attempts are not counted: the deadline decides. When it leaves no room for
another attempt the fault itself is raised, so the outcome names the cause and not the deadline.
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

from hillclimb.environment.deadline import remaining_s, within
from hillclimb.environment.retry import ExponentialBackoff, retry_async
from trainer.envs.fleet.wire.faults import CallRefused, WireFault, of_timeout, of_unknown

T = TypeVar("T")

BACKOFF = ExponentialBackoff(first_s=0.2, longest_s=5.0)
DEFAULT_DEADLINE_S = 90.0
"""Deadline of an operation whose caller sets none; as long as Fleet's own client gives a call."""
LEAST_S = 0.05
"""An attempt with less time than this is not started."""
IDLE_S = 4.0
"""Keep-alive of idle connections: servers close theirs after five seconds and more, and a request
on a closing connection may or may not have been carried out."""
LATE_S = 0.25
"""A timer that fires later than this shows that the event loop was blocked, as by an engine."""
_log = logging.getLogger(__name__)


class LoadObserver(Protocol):
    """Observes how the server copes, such as a limiter."""

    def on_success(self) -> None:
        """Observe an operation that was answered."""
        ...

    def on_overload(self, fault: WireFault) -> None:
        """Observe a timeout, or a limit of the server."""
        ...


@dataclass(slots=True)
class Meter:
    """Counters of an episode; `unknown` counts faults of classes that `faults.py` does not name."""

    counts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def count(self, name: str) -> None:
        """Increment a counter."""
        self.counts[name] += 1


@dataclass(slots=True, kw_only=True)
class CallRetry:
    """Retries the operations of one episode, within the caller's deadline."""

    operation_s: float
    """Timeout of one attempt (seconds)."""
    meter: Meter
    load: LoadObserver
    rng: random.Random = field(default_factory=random.Random)

    async def call(
        self,
        name: str,
        operation: Callable[[], Awaitable[T]],
        *,
        may_repeat: Callable[[WireFault], bool] = lambda _: True,
        at_most_s: float | None = None,
    ) -> T:
        """Return the result of `operation`, retried while its faults are transient.

        `at_most_s`: timeout of one attempt, where it is not `operation_s`.

        Raises:
            WireFault: the fault is not transient, `may_repeat` forbids another attempt, or no time
                remains for one.
        """

        async def attempt(number: int) -> T:
            if number:
                self.meter.count("retries")
            result = await self._once(name, operation, at_most_s or self.operation_s)
            self.load.on_success()
            return result

        def pause_s(fault: WireFault, number: int) -> float | None:
            self._record(name, fault)
            if not fault.is_transient or not may_repeat(fault):
                return None
            pause = max(fault.retry_after_s or 0.0, BACKOFF.pause_s(number, self.rng))
            if pause + LEAST_S < remaining_s():
                return pause
            fault.is_deferred = fault.retry_after_s is not None
            return None

        with within(DEFAULT_DEADLINE_S if math.isinf(remaining_s()) else math.inf):
            return await retry_async(attempt, faults=WireFault, pause_s=pause_s)

    async def _once(self, name: str, operation: Callable[[], Awaitable[T]], at_most_s: float) -> T:
        seconds = max(min(at_most_s, remaining_s()), LEAST_S)
        try:
            async with _bounded(seconds) as deadline:
                return await operation()
        except TimeoutError as late:
            if deadline.expired():
                raise of_timeout(name, seconds) from late
            raise of_unknown(late) from late
        except (WireFault, CallRefused):
            raise
        except Exception as error:
            raise of_unknown(error) from error

    def _record(self, name: str, fault: WireFault) -> None:
        """Count a fault, and report an overload to the limiter."""
        if fault.is_overload:
            self.meter.count("timeouts" if fault.kind == "timeout" else "limits")
            self.load.on_overload(fault)
        if not fault.is_known:
            self.meter.unknown[fault.kind] += 1
            _log.warning("%s: unknown error %s\n%s", name, fault, _traceback(fault))


def _traceback(fault: WireFault) -> str:
    """Return the traceback of the cause, without its message, which may hold secrets."""
    cause = fault.__cause__
    return "".join(traceback.format_tb(cause.__traceback__)) if cause else ""


@asynccontextmanager
async def _bounded(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Bound the block; after the loop was blocked, responses that came meanwhile go first.

    Else the timer, due together with the response, would turn a long computation into a timeout.
    """
    loop = asyncio.get_running_loop()
    due_at = loop.time() + seconds
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as deadline:

        def check() -> None:
            nonlocal due_at, timer
            now = loop.time()
            if now - due_at > LATE_S:
                due_at = now + LATE_S
                timer = loop.call_at(due_at, check)
            else:
                deadline.reschedule(now)

        timer = loop.call_at(due_at, check)
        try:
            yield deadline
        finally:
            timer.cancel()
