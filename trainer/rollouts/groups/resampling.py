"""Resampling policy: replaces groups or batches without a training signal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hillclimb.spec.training.algorithm import DynamicSamplingSpec
from trainer.algo.dynamic import has_enough_signal, has_reward_spread
from trainer.rollouts.request import Rollout

RolloutGroup = tuple[Rollout, ...]
"""All rollouts of one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResamplePolicy:
    """Groups and batches that are resampled, and how often; by default none."""

    keeps: Callable[[RolloutGroup], bool] = lambda _group: True
    """True if a group may enter a batch; otherwise its slot draws another task."""
    accepts: Callable[[Sequence[RolloutGroup]], bool] = lambda _batch: True
    """True if a batch is worth a step; otherwise all its slots draw another task."""
    max_draws: int = 1
    """Tasks that one slot, and batches that one step, may draw; the last is always accepted."""

    @classmethod
    def of(cls, rule: DynamicSamplingSpec | None) -> ResamplePolicy:
        """Return the policy of `algorithm.dynamic_sampling`."""
        if rule is None:
            return cls()
        if rule.type == "filter":
            return cls(keeps=_has_signal, max_draws=rule.max_sample_batches)

        def accepts(batch: Sequence[RolloutGroup]) -> bool:
            return has_enough_signal(sum(map(_has_signal, batch)), len(batch), rule)

        return cls(accepts=accepts, max_draws=rule.max_sample_batches)


def _has_signal(group: RolloutGroup) -> bool:
    return has_reward_spread(rollout.trajectory.reward for rollout in group)
