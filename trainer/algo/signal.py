"""Learning signal in the rollouts of a step, before the update. Legend: _G one group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.dynamic import has_signal
from trainer.algo.overlong import is_overlong
from trainer.algo.sequences import Batch
from trainer.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """A group with the rewards that it is trained on, which `shuffle_rewards` may have permuted."""

    group: Group
    rewards_G: tuple[float | None, ...]
    """None where a rollout has no grade."""
    advantages_G: tuple[float, ...]

    def with_gradient(self, algorithm: AlgorithmSpec) -> Iterator[tuple[Trajectory, float]]:
        """Yield the rollouts that the loss has a gradient of, each with its advantage.

        None where no rollout was better than another; where one was, a rollout at the mean itself
        has a gradient from the divergence only.
        """
        if not any(self.advantages_G):
            return
        for trajectory, reward, advantage in zip(
            self.group.trajectories, self.rewards_G, self.advantages_G, strict=True
        ):
            needs_kl = algorithm.use_kl_loss and reward is not None
            if (advantage != 0.0 or needs_kl) and any(trajectory.action_mask):
                yield trajectory, advantage


def signal_metrics(
    scored_groups: Sequence[ScoredGroup], algorithm: AlgorithmSpec
) -> dict[str, float]:
    """Average advantages over the tokens of graded rollouts, and rewards over those rollouts.

    `rollouts/truncated_overlong` counts the rollouts that a length limit cut off, and
    `loss/num_overlong_filtered` those of them that had a gradient, which the filter kept out of the
    loss. What has no value because nothing was graded is left out.
    """
    rows = [
        (trajectory, reward, advantage)
        for each in scored_groups
        for trajectory, reward, advantage in zip(
            each.group.trajectories, each.rewards_G, each.advantages_G, strict=True
        )
        if reward is not None
    ]
    num_overlong = sum(is_overlong(trajectory) for trajectory, _, _ in rows)
    metrics = {"rollouts/truncated_overlong": float(num_overlong)}
    if algorithm.apply_overlong_filtering:
        num_filtered = sum(
            is_overlong(trajectory)
            for each in scored_groups
            for trajectory, _ in each.with_gradient(algorithm)
        )
        metrics["loss/num_overlong_filtered"] = float(num_filtered)
    num_tokens = [sum(trajectory.action_mask) for trajectory, _, _ in rows]
    if not sum(num_tokens):
        return metrics
    weighed = [n * advantage for n, (_, _, advantage) in zip(num_tokens, rows, strict=True)]
    return metrics | {
        "loss/avg_final_rewards": math.fsum(reward for _, reward, _ in rows) / len(rows),
        "loss/avg_raw_advantages": math.fsum(weighed) / sum(num_tokens),
        "loss/avg_raw_advantages_abs": math.fsum(map(abs, weighed)) / sum(num_tokens),
    }


def why_nothing_is_learned(groups: Sequence[Group], batch: Batch) -> str:
    """Return the reason why the batch made of `groups` has no sequence, as a sentence."""
    num_filtered = batch.metrics.get("loss/num_overlong_filtered", 0.0)
    if num_filtered:
        reason = (
            f"a length limit cut off all {num_filtered:.0f} rollouts that had something to teach,"
            " and algorithm.apply_overlong_filtering keeps those out of the loss"
        )
    elif all(sum(each.reward is not None for each in group.trajectories) < 2 for group in groups):
        reason = "no group has two graded rollouts to compare"
    elif any(map(has_signal, groups)):
        reason = "the rollouts that scored better or worse than their group drew no token"
    else:
        reason = "the rollouts of every group scored alike"
    return f"{reason}: nothing was learned in this step"
