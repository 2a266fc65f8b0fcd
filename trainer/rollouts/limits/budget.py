"""Deadlines of one rollout, nested: call < turn < trajectory. Whoever used up the time answers.

A rollout that is rolled again goes on under the same clock: what earlier tries took is time that
the environment used. A step and a run have theirs in `trainer/attempt/watchdog.py`; what an
environment does within a call is bounded by the call's.

An engine may compute in the event loop's own thread. While it does, no answer of an environment
can be received, so those seconds are never counted as the environment's.
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
from trainer.rollouts.operation import EnvOperation, Kind


class PolicyTimeUp(Exception):
    """The trajectory's or the turn's time is over, and the policy used most of it."""


@dataclass(slots=True)
class RolloutClock:
    """Start of a rollout, and the time its tries have taken so far (seconds)."""

    limits: RolloutLimits
    started: float = field(default_factory=time.monotonic)
    lost_s: float = 0.0
    """By tries that came to nothing, for faults of the environment."""
    queued_s: float = 0.0
    """Spent in a queue for a free environment, or for an engine that died and was started again:
    time that nobody used."""

    def lose(self) -> None:
        """Count all the time so far as lost."""
        self.lost_s = self.elapsed_s

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Count what is in the block as queueing, which moves every deadline of the rollout."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.queued_s += time.monotonic() - began

    def turn_back(self, elapsed_s: float) -> None:
        """Count everything since `elapsed_s` as queueing: the try came to nothing by no fault."""
        self.queued_s += self.elapsed_s - elapsed_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first try began, without those in a queue."""
        return time.monotonic() - self.started - self.queued_s

    @property
    def left_s(self) -> float:
        """Seconds until the trajectory's deadline, which a second try is allowed to pass a bit."""
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
    """The time of one try at a trajectory, and how it was spent (seconds)."""

    clock: RolloutClock
    loop_blocked_s: Callable[[], float] = lambda: 0.0
    """Seconds, since any fixed moment, for which the event loop could not run."""
    policy_s: float = 0.0
    env_s: float = 0.0
    operations: list[EnvOperation] = field(default_factory=list)
    """What was asked of the environment, in order."""
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
        """Bound what is in the block, a model turn with its calls, by `turn_timeout_s` too."""
        self._turn = _Turn(time.monotonic(), self.policy_s, self.env_s)
        try:
            yield
        finally:
            self._turn = None

    @asynccontextmanager
    async def policy(self, is_nobodys: Callable[[], bool] = lambda: False) -> AsyncIterator[None]:
        """Spend the policy's time: sampling one turn.

        Where `is_nobodys` says so once it is sampled, no deadline counts the time that it took.

        Raises:
            PolicyTimeUp: the trajectory's or the turn's time is over and was mostly the policy's.
            RolloutDeadline: it is over and was mostly the environment's.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._left()):
                yield
        except TimeoutError:
            self.policy_s += time.monotonic() - began
            raise self._time_up() from None
        took_s = time.monotonic() - began
        if not is_nobodys():
            self.policy_s += took_s
            return
        self.clock.queued_s += took_s
        if self._turn is not None:
            self._turn.started += took_s

    @asynccontextmanager
    async def environment(
        self, kind: Kind, on_timeout: RolloutError, *, at_most_s: float
    ) -> AsyncIterator[None]:
        """Spend the environment's time: one operation, bounded by its own deadline alone.

        A call that was cut by the turn's or the trajectory's time would be the fault of whoever had
        been slow before, though it might never have been answered. Whether their time is over
        is asked before an operation and after it (`refuse_late`). A reset is cut by it: nothing
        but the environment was asked for anything before.

        Raises:
            RolloutError: `on_timeout`, when the operation itself took too long.
            PolicyTimeUp: the trajectory's or the turn's time is over and was mostly the policy's.
            RolloutDeadline: it is over and was mostly the environment's.
        """
        left, spent = self._left(), self._stopwatch()
        cut_s = left if kind == "reset" else None
        with self._noting(kind, spent):
            try:
                async with asyncio.timeout(cut_s) as deadline:
                    limit_s = at_most_s if cut_s is None else min(cut_s, at_most_s)
                    with self._call_limit(deadline, spent, at_most_s), within(limit_s):
                        yield
            except TimeoutError:
                self.env_s += spent()
                # An environment may raise a TimeoutError of its own: that is no deadline of ours.
                if self._call_expired or not deadline.expired():
                    raise on_timeout from None
                raise self._time_up() from None
        self.env_s += spent()

    @asynccontextmanager
    async def grading(self, on_timeout: RolloutError) -> AsyncIterator[None]:
        """Wait for a grade, at most `verifier_timeout_s`; the trajectory's time may be over.

        Raises:
            RolloutError: `on_timeout`, when the grade took too long.
        """
        limit_s, spent = self.limits.verifier_timeout_s, self._stopwatch()
        with self._noting("verification", spent):
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
        self._left()

    def note_no_grade(self) -> None:
        """Write down that the verification that was last gave no grade, though it answered."""
        self.operations[-1] = replace(self.operations[-1], failed=True)

    @contextmanager
    def _noting(self, kind: Kind, spent: Callable[[], float]) -> Iterator[None]:
        """Write down the operation in the block, whatever becomes of it."""
        try:
            yield
        except Exception:
            self.operations.append(EnvOperation(kind, spent(), failed=True))
            raise
        self.operations.append(EnvOperation(kind, spent(), failed=False))

    def _stopwatch(self) -> Callable[[], float]:
        """Seconds from now on in which the event loop was free to receive an answer."""
        began, blocked = time.monotonic(), self.loop_blocked_s()
        return lambda: time.monotonic() - began - (self.loop_blocked_s() - blocked)

    @contextmanager
    def _call_limit(
        self, deadline: asyncio.Timeout, spent: Callable[[], float], at_most_s: float
    ) -> Iterator[None]:
        """Expire `deadline` once `spent` passes `at_most_s`.

        A loop that was late for another reason, such as a busy machine, finds answer and timer due
        together: the answer goes first.
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

    def _left(self) -> float:
        left = self.clock.left_s
        if self._turn is not None:
            left = min(left, self._turn.started + self.limits.turn_timeout_s - time.monotonic())
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
