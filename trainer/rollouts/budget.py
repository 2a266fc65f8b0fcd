"""Deadlines of one rollout, nested: call < trajectory. Whoever used up the time answers for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from trainer.errors import RolloutDeadline, RolloutError
from trainer.rollouts.limits import Limits


class PolicyTimeUp(Exception):
    """The trajectory's time is over, and the policy used most of it."""


@dataclass(slots=True)
class TimeBudget:
    """The trajectory's time, and how it was spent (seconds)."""

    limits: Limits
    started: float = field(default_factory=time.monotonic)
    policy_s: float = 0.0
    env_s: float = 0.0

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
        began, left = time.monotonic(), self._left()
        try:
            async with asyncio.timeout(min(self.limits.call_timeout_s, left)):
                yield
        except TimeoutError:
            self.env_s += time.monotonic() - began
            if left > self.limits.call_timeout_s:
                raise on_timeout from None
            raise self._time_up() from None
        self.env_s += time.monotonic() - began

    @property
    def elapsed_s(self) -> float:
        """Seconds since the rollout began."""
        return time.monotonic() - self.started

    def _left(self) -> float:
        left = self.limits.trajectory_timeout_s - self.elapsed_s
        if left <= 0.0:
            raise self._time_up()
        return left

    def _time_up(self) -> Exception:
        if self.policy_s >= self.env_s:
            return PolicyTimeUp()
        return RolloutDeadline(f"the environment used {self.env_s:.1f} s of the trajectory's time")
