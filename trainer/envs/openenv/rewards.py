"""From the rewards of a server to the score of an episode."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hillclimb.environment.base import Grade
from hillclimb.spec.environment.openenv import OpenEnvServer
from trainer.errors import SpecError

_ROUNDING = 1e-6
"""Share of the range by which a reward may lie outside of it: servers add in 32-bit floats."""


class RewardScale:
    """Grades the episodes of one server by its range of rewards.

    Args:
        key: of the environment.
        server: settings of the spec.
    """

    def __init__(self, key: str, server: OpenEnvServer) -> None:
        self._key = key
        self._low, self._high = server.reward_range
        self._clips = server.reward_outside == "clip"
        self._sums = server.reward == "sum"
        self._lowest, self._highest = math.inf, -math.inf

    def grade(self, rewards: Sequence[object]) -> Grade:
        """Grade an episode by its rewards, of which there is at least one.

        The grade's detail has the server's own number wherever the score is another one.

        Raises:
            SpecError: the reward lies outside of the range, and the spec does not say to clip it.
                Leaving such episodes out would bias whatever is computed from the others.
        """
        numbers = [float(each) for each in rewards if isinstance(each, bool | int | float)]
        if len(numbers) < len(rewards) or not all(map(math.isfinite, numbers)):
            return Grade(score=None, reason="the server gave a reward that is not a number")
        reward = math.fsum(numbers) if self._sums else numbers[-1]
        self._lowest, self._highest = min(self._lowest, reward), max(self._highest, reward)
        width = self._high - self._low
        inside = min(max(reward, self._low), self._high)
        is_outside = abs(reward - inside) > _ROUNDING * width
        if is_outside and not self._clips:
            raise SpecError(self._refusal(reward))
        detail = f"{self._name}: {reward:g}"
        if is_outside:
            detail += f", clipped to {inside:g}"
        score = (inside - self._low) / width
        is_own = (self._low, self._high) == (0.0, 1.0) and not is_outside
        return Grade(score=score, detail=None if is_own else detail)

    @property
    def _name(self) -> str:
        return "the sum of an episode's rewards" if self._sums else "the server's reward"

    def _refusal(self, reward: float) -> str:
        return (
            f"environment.openenv.{self._key}.reward_range is [{self._low:g}, {self._high:g}], but"
            f" {self._name} was {reward:g}; seen so far: {self._lowest:g} to {self._highest:g}."
            " Episodes without a grade would bias all figures, so set reward_range to the lowest"
            " and the highest reward that an episode can have, or reward_outside: clip"
        )
