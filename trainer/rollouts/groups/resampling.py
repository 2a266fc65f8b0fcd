"""When a stream of groups draws again, because what came out has nothing to teach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.algo.dynamic import has_contrast, teaches_enough
from trainer.contract.algorithm import DynamicSamplingSpec
from trainer.rollouts.wave import Rollout

DrawnGroup = tuple[Rollout, ...]
"""All rollouts of one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrawing:
    """What is drawn again, and how often; by default nothing."""

    keeps: Callable[[DrawnGroup], bool] = lambda _group: True
    """Whether a group is worth a place in a batch; where not, its slot draws another task."""
    accepts: Callable[[Sequence[DrawnGroup]], bool] = lambda _batch: True
    """Whether a batch is worth a step; where not, all its slots draw another task."""
    max_draws: int = 1
    """Tasks that one slot may draw, and batches that one step may; the last is kept as it is."""

    @classmethod
    def of(cls, rule: DynamicSamplingSpec | None) -> Redrawing:
        """Return what `algorithm.dynamic_sampling` asks for."""
        if rule is None:
            return cls()
        if rule.type == "filter":
            return cls(keeps=_teaches, max_draws=rule.max_sample_batches)

        def accepts(batch: Sequence[DrawnGroup]) -> bool:
            return teaches_enough(sum(map(_teaches, batch)), len(batch), rule)

        return cls(accepts=accepts, max_draws=rule.max_sample_batches)


def _teaches(group: DrawnGroup) -> bool:
    return has_contrast(rollout.trajectory.reward for rollout in group)
