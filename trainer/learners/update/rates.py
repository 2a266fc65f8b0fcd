"""The learning rate over the life of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hillclimb.spec.training.optimizer import OptimizerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSchedule:
    """Warm-up over optimizer steps times a fall over training steps."""

    optimizer: OptimizerSpec
    warmup_updates: int = 0
    """Optimizer steps over which the rate rises linearly from 0."""
    total_steps: int = 1
    """Training steps of the run: where `linear` and `cosine` end."""

    def at(self, *, step: int, update: int) -> float:
        """Return the rate of the update after `step` training and `update` optimizer steps.

        The first step has the peak rate (of the warm-up), the last one still more than
        `min_lr_ratio`: a rate of 0 would waste it.
        """
        warm = min(1.0, (update + 1) / self.warmup_updates) if self.warmup_updates else 1.0
        return self.optimizer.lr * warm * self._fall(min(step / self.total_steps, 1.0))

    def _fall(self, progress: float) -> float:
        floor = self.optimizer.min_lr_ratio
        if self.optimizer.lr_scheduler == "constant":
            return 1.0
        if self.optimizer.lr_scheduler == "linear":
            return floor + (1.0 - floor) * (1.0 - progress)
        return floor + (1.0 - floor) * (1.0 + math.cos(math.pi * progress)) / 2.0
