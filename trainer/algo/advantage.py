"""Group-relative advantages: each rollout's reward relative to those of its group.

Legend: _G the rollouts of one group.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from hillclimb.stats.reward_spread import deviations

STD_EPS = 1e-6
"""Added to the standard deviation, as in SkyRL."""


def group_advantages(rewards_G: Sequence[float | None], *, norm_by_std: bool) -> tuple[float, ...]:
    """One advantage per rollout; 0.0 where the rollout teaches nothing.

    A rollout without a grade (None) enters neither the mean nor the deviation and gets 0.0. A group
    with fewer than two grades, or whose grades are all equal, gets zeros throughout: there is
    nothing to compare. `hillclimb.stats.reward_spread` decides which grades are equal, and
    which are at the mean.

    Source: GRPO (arXiv:2402.03300, section 4.1.2) with SkyRL's unbiased standard deviation (n - 1)
    and eps 1e-6; `norm_by_std=False` is Dr. GRPO (arXiv:2503.20783): reward minus mean.
    """
    graded = [reward for reward in rewards_G if reward is not None]
    centred = deviations(graded)
    scale = 1.0
    if norm_by_std and any(centred):
        variance = math.fsum(each**2 for each in centred) / (len(centred) - 1)
        scale = math.sqrt(variance) + STD_EPS
    deviation = iter(centred)
    return tuple(0.0 if reward is None else next(deviation) / scale for reward in rewards_G)


def shuffled_rewards(
    rewards: Sequence[Sequence[float | None]], *, seed: int
) -> list[tuple[float | None, ...]]:
    """Permute the step's grades over its rollouts: the control in which nothing can be learned.

    `rewards` holds one sequence per group. The multiset of grades over the whole step is kept;
    rollouts without a grade stay without one.
    """
    grades = [reward for group in rewards for reward in group if reward is not None]
    random.Random(seed).shuffle(grades)
    permuted = iter(grades)
    return [
        tuple(None if reward is None else next(permuted) for reward in group) for group in rewards
    ]
