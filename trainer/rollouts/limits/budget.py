"""Deadlines of one rollout, nested: call < turn < trajectory. Whoever used most time is at fault.

A retried rollout keeps its clock: the time of its failed tries is charged to the environment. The
deadlines of steps and runs are in `trainer/attempt/watchdog.py`.

An engine may compute in the event loop's own thread. Meanwhile the loop cannot receive a response
of the environment, so those seconds are never charged to the environment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from hillclimb.environment.deadline import within
from hillclimb.environment.errors import RolloutDeadline, RolloutError
from trainer.rollouts.limits.limits import RolloutLimits
from trainer.rollouts.operation import EnvOperation, Kind, RolloutSpan, SpanKind


def now() -> float:
    """Return the event loop's time, by which its timers expire (seconds)."""
    return asyncio.get_running_loop().time()


class PolicyTimeUp(Exception):
    """The trajectory's or the turn's time is over, and the policy used most of it."""


@dataclass(slots=True)
class RolloutClock:
    """Clock of a rollout over all its tries (seconds)."""

    limits: RolloutLimits
    started: float = field(default_factory=now)
    lost_s: float = 0.0
    """Time of the tries that failed by the environment's fault."""
    queued_s: float = 0.0
    """Wait for a free environment, for room in the engine's cache, or for an engine that restarts;
    charged to nobody."""
    began_at: float = field(default_factory=time.time)
    """When the rollout began (seconds since the epoch)."""
    spans: list[RolloutSpan] = field(default_factory=list)
    """What it did from when to when, over all tries."""

    def count_as_lost(self) -> None:
        """Count all the time so far as lost."""
        self.lost_s = self.elapsed_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count the block as queueing, which postpones every deadline of the rollout."""
        began = now()
        try:
            with self.span("queue"):
                yield
        finally:
            self.queued_s += now() - began

    @contextmanager
    def span(self, kind: SpanKind, label: str = "") -> Iterator[None]:
        """Record the block as a span of the rollout's timeline."""
        began, failed = now(), True
        try:
            yield
            failed = False
        finally:
            self.spans.append(RolloutSpan(kind, began - self.started, now() - began, failed, label))

    def discount_since(self, elapsed_s: float) -> None:
        """Count everything since `elapsed_s` as queueing: neither side caused the try to fail."""
        self.queued_s += self.elapsed_s - elapsed_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first try began, without those in a queue."""
        return now() - self.started - self.queued_s

    @property
    def left_s(self) -> float:
        """Seconds until the trajectory's deadline; retries get `infra_retry_allowance_s` more."""
        allowance = self.limits.infra_retry_allowance_s if self.lost_s else 0.0
        return self.limits.trajectory_timeout_s + allowance - self.elapsed_s


@dataclass(slots=True)
class _Turn:
    """Start of a turn, and the time that policy and environment had used before it."""

    started: float
    policy_s: float
    env_s: float


@dataclass(slots=True)
class TimeBudget:
    """The time of one try, charged to the policy or to the environment (seconds)."""

    clock: RolloutClock
    loop_blocked_s: Callable[[], float] = lambda: 0.0
    """Seconds, since any fixed moment, for which the event loop could not run."""
    policy_s: float = 0.0
    env_s: float = 0.0
    operations: list[EnvOperation] = field(default_factory=list)
    """The operations on the environment, in order."""
    _turn: _Turn | None = None
    _call_expired: bool = False

    def __post_init__(self) -> None:
        """Charge the time lost by earlier tries to the environment."""
        self.env_s += self.clock.lost_s

    @property
    def limits(self) -> RolloutLimits:
        """The bounds of the rollout."""
        return self.clock.limits

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Bound the block, a model turn with its calls, by `turn_timeout_s` too."""
        self._turn = _Turn(now(), self.policy_s, self.env_s)
        try:
            yield
        finally:
            self._turn = None

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Charge the block, a wait for room in an engine's cache, to nobody."""
        began = now()
        try:
            with self.clock.paused():
                yield
        finally:
            if self._turn is not None:
                self._turn.started += now() - began

    @asynccontextmanager
    async def policy(self, is_uncharged: Callable[[], bool] = lambda: False) -> AsyncIterator[None]:
        """Charge the block, which samples one turn, to the policy.

        If `is_uncharged` returns True after the block, its time counts as queueing instead.

        Raises:
            PolicyTimeUp: the trajectory's or the turn's time is over and was mostly the policy's.
            RolloutDeadline: it is over and was mostly the environment's.
        """
        began = now()
        try:
            with self.clock.span("sample"):
                async with asyncio.timeout(self._remaining_s()):
                    yield
        except TimeoutError:
            self.policy_s += now() - began
            raise self._time_up() from None
        took_s = now() - began
        if not is_uncharged():
            self.policy_s += took_s
            return
        self.clock.queued_s += took_s
        if self._turn is not None:
            self._turn.started += took_s

    @asynccontextmanager
    async def environment(
        self,
        kind: Kind,
        on_timeout: RolloutError,
        *,
        at_most_s: float,
        label: str = "",
        reaches_server: bool = True,
    ) -> AsyncIterator[None]:
        """Charge the block, one operation, to the environment, bounded by its own deadline alone.

        Turn and trajectory do not cut a call off: the party that was slow before would be blamed
        for a call that may never have got a response. Their deadlines are checked before the
        operation and after it (`refuse_late`). A reset is cut off by them: only the environment
        has used time before it. An operation that does not reach the server is no measure of its
        latency and is recorded only if it fails.

        Raises:
            RolloutError: `on_timeout`, when the operation itself took too long.
            PolicyTimeUp: the trajectory's or the turn's time is over and was mostly the policy's.
            RolloutDeadline: it is over and was mostly the environment's.
        """
        left, spent = self._remaining_s(), self._stopwatch()
        cut_s = left if kind == "reset" else None
        with self._recorded(kind, spent, label, only_failures=not reaches_server):
            try:
                async with asyncio.timeout(cut_s) as deadline:
                    limit_s = at_most_s if cut_s is None else min(cut_s, at_most_s)
                    with self._call_limit(deadline, spent, at_most_s), within(limit_s):
                        yield
            except TimeoutError:
                self.env_s += spent()
                # The environment's own code may raise TimeoutError too, without any deadline here.
                if self._call_expired or not deadline.expired():
                    raise on_timeout from None
                raise self._time_up() from None
        self.env_s += spent()

    @asynccontextmanager
    async def grading(self, on_timeout: RolloutError) -> AsyncIterator[None]:
        """Bound the block, a verification, by `verifier_timeout_s`, even after the deadline.

        Raises:
            RolloutError: `on_timeout`, when the grade took too long.
        """
        limit_s, spent = self.limits.verifier_timeout_s, self._stopwatch()
        with self._recorded("verification", spent):
            try:
                async with asyncio.timeout(None) as deadline:
                    with self._call_limit(deadline, spent, limit_s), within(limit_s):
                        yield
            except TimeoutError:
                raise on_timeout from None

    def refuse_late(self) -> None:
        """Return if there is time left.

        Raises:
            PolicyTimeUp: the trajectory's or the turn's time is over and was mostly the policy's.
            RolloutDeadline: it is over and was mostly the environment's.
        """
        self._remaining_s()

    def record_missing_grade(self) -> None:
        """Record the last verification as failed: its response had no grade."""
        self.operations[-1] = replace(self.operations[-1], failed=True)

    @contextmanager
    def _recorded(
        self,
        kind: Kind,
        spent: Callable[[], float],
        label: str = "",
        *,
        only_failures: bool = False,
    ) -> Iterator[None]:
        """Record the operation in the block, also when it fails."""
        try:
            with self.clock.span(kind, label):
                yield
        except Exception:
            self.operations.append(EnvOperation(kind, spent(), failed=True))
            raise
        if not only_failures:
            self.operations.append(EnvOperation(kind, spent(), failed=False))

    def _stopwatch(self) -> Callable[[], float]:
        """Return a stopwatch of the seconds in which the event loop could receive a response."""
        began, blocked = now(), self.loop_blocked_s()
        return lambda: now() - began - (self.loop_blocked_s() - blocked)

    @contextmanager
    def _call_limit(
        self, deadline: asyncio.Timeout, spent: Callable[[], float], at_most_s: float
    ) -> Iterator[None]:
        """Expire `deadline` once `spent` passes `at_most_s`.

        If a busy machine delays the loop, response and timer become due together. `call_soon`
        then puts the expiry behind the response.
        """
        loop = asyncio.get_running_loop()
        timer: asyncio.Handle

        def expire() -> None:
            self._call_expired = True
            deadline.reschedule(loop.time())

        def check() -> None:
            nonlocal timer
            left = at_most_s - spent()
            timer = loop.call_later(left, check) if left > 0.0 else loop.call_soon(expire)

        self._call_expired = False
        timer = loop.call_later(at_most_s, check)
        try:
            yield
        finally:
            timer.cancel()

    def _remaining_s(self) -> float:
        left = self.clock.left_s
        if self._turn is not None:
            left = min(left, self._turn.started + self.limits.turn_timeout_s - now())
        if left <= 0.0:
            raise self._time_up()
        return left

    def _time_up(self) -> Exception:
        policy_s, env_s, whose = self.policy_s, self.env_s, "trajectory"
        if self._turn is not None and self.clock.left_s > 0.0:
            policy_s, env_s, whose = (
                policy_s - self._turn.policy_s,
                env_s - self._turn.env_s,
                "turn",
            )
        if policy_s >= env_s:
            return PolicyTimeUp()
        return RolloutDeadline(f"the environment used {env_s:.1f} s of the {whose}'s time")
