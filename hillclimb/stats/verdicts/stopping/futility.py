"""Futility of an evaluation: whether its remaining tasks may still decide the verdict.

Conditional power under the change that favours a decision most (Lachin 2005, "A review of methods
for futility stopping based on conditional power", *Statistics in Medicine* 24, 2747-2764), with
normal distributions: the remaining differences have the variance of those so far, and a mean at the
end of its 95 % interval. One task gained and one lost are added to those seen: a few tasks without
any change do not show that none will.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist

from hillclimb.stats.intervals import CONFIDENCE_Z

_NORMAL = NormalDist()


@dataclass(slots=True)
class DecisionChance:
    """The chance that the complete evaluation decides, updated task by task."""

    planned: int
    """Pairs of the complete evaluation (count)."""
    one_sided_level: float
    """Level of the test at the end, in (0, 1)."""
    _num: int = field(default=2, init=False)
    _sum: float = field(default=0.0, init=False)
    _squares: float = field(default=2.0, init=False)

    def add(self, difference: Fraction) -> None:
        """Add the change of one task, in [-1, 1]."""
        self._num += 1
        self._sum += float(difference)
        self._squares += float(difference) ** 2

    @property
    def value(self) -> float:
        """The larger of the chances of IMPROVED and of REGRESSED, in [0, 1]."""
        num_left = self.planned + 2 - self._num
        mean = self._sum / self._num
        deviation = math.sqrt(max(self._squares / self._num - mean * mean, 0.0))
        margin = CONFIDENCE_Z * deviation / math.sqrt(self._num)
        needed = -_NORMAL.inv_cdf(self.one_sided_level) * math.sqrt(
            self._squares * (self.planned + 2) / self._num
        )
        spread = deviation * math.sqrt(num_left)
        if spread == 0.0:
            return float(abs(self._sum) >= needed)
        gain = self._sum + num_left * (mean + margin)
        loss = -self._sum + num_left * (margin - mean)
        return 1.0 - _NORMAL.cdf((needed - max(gain, loss)) / spread)
