"""Deadlines of one rollout, nested: call < trajectory. Whoever used up the time answers for it.

An engine may compute in the event loop's own thread. While it does, no answer of an environment
can be received, so those seconds are never counted as the environment's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from trainer.errors import RolloutDeadline, RolloutError
from trainer.rollouts.limits import Limits


class PolicyTimeUp(Exception):
    """The trajectory's time is over, and the policy used most of it."""


@dataclass(slots=True)
class TimeBudget:
    """The trajectory's time, and how it was spent (seconds)."""

    limits: Limits
    loop_blocked_s: Callable[[], float] = lambda: 0.0
    """Seconds, since any fixed moment, for which the event loop could not run."""
    started: float = field(default_factory=time.monotonic)
    policy_s: float = 0.0
    env_s: float = 0.0
    _call_expired: bool = False

    @asynccontextmanager
    async def policy(self) -> AsyncIterator[None]:
        """Spend the policy's time: sampling one turn.

        Raises:
            PolicyTimeUp: the trajectory's time is over and was mostly the policy's.
            RolloutDeadline: it is over and was mostly the environment's.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._left()):
                yield
        except TimeoutError:
            self.policy_s += time.monotonic() - began
            raise self._time_up() from None
        self.policy_s += time.monotonic() - began

    @asynccontextmanager
    async def environment(self, on_timeout: RolloutError) -> AsyncIterator[None]:
        """Spend the environment's time: one operation, at most `call_timeout_s`.

        Raises:
            RolloutError: `on_timeout`, when the operation itself took too long.
            PolicyTimeUp: the trajectory's time is over and was mostly the policy's.
            RolloutDeadline: it is over and was mostly the environment's.
        """
        left, spent = self._left(), self._stopwatch()
        try:
            async with asyncio.timeout(left) as deadline:
                with self._call_limit(deadline, spent):
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
        """Wait for a grade, at most `call_timeout_s`; the trajectory's time may be over already.

        Raises:
            RolloutError: `on_timeout`, when the grade took too long.
        """
        try:
            async with asyncio.timeout(None) as deadline:
                with self._call_limit(deadline, self._stopwatch()):
                    yield
        except TimeoutError:
            raise on_timeout from None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the rollout began."""
        return time.monotonic() - self.started

    def _stopwatch(self) -> Callable[[], float]:
        """Seconds from now on in which the event loop was free to receive an answer."""
        began, blocked = time.monotonic(), self.loop_blocked_s()
        return lambda: time.monotonic() - began - (self.loop_blocked_s() - blocked)

    @contextmanager
    def _call_limit(self, deadline: asyncio.Timeout, spent: Callable[[], float]) -> Iterator[None]:
        """Expire `deadline` once `spent` passes `call_timeout_s`.

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
            left = self.limits.call_timeout_s - spent()
            timer = loop.call_later(left, check) if left > 0.0 else loop.call_soon(expire)

        self._call_expired = False
        timer = loop.call_later(self.limits.call_timeout_s, check)
        try:
            yield
        finally:
            timer.cancel()

    def _left(self) -> float:
        left = self.limits.trajectory_timeout_s - self.elapsed_s
        if left <= 0.0:
            raise self._time_up()
        return left

    def _time_up(self) -> Exception:
        if self.policy_s >= self.env_s:
            return PolicyTimeUp()
        return RolloutDeadline(f"the environment used {self.env_s:.1f} s of the trajectory's time")
