"""Staleness metrics of a training batch: age of the weights that sampled its tokens."""

from __future__ import annotations

from statistics import fmean

from trainer.rollouts.groups.buffer import RolloutBatch
from trainer.types import Trajectory


def staleness_metrics(batch: RolloutBatch, *, version: int, bound: int) -> dict[str, float]:
    """Return `async/...` for the groups that the weights of `version` are about to learn from.

    The staleness of a trajectory is that of its oldest drawn token, in versions; the buffer keeps
    it within `bound`, and trajectories beyond it are counted here.
    """
    versions_of = [
        versions
        for group in batch.groups
        for rollout in group
        if (versions := _versions(rollout.trajectory))
    ]
    num_groups, num_dropped = len(batch.groups), len(batch.dropped)
    metrics = {
        "async/num_groups_ahead": float(batch.num_in_flight),
        "async/keep_rate": num_groups / (num_groups + num_dropped),
    }
    if not versions_of:
        return metrics
    ages = [version - min(versions) for versions in versions_of]
    return metrics | {
        "async/staleness_mean": fmean(ages),
        "async/staleness_max": float(max(ages)),
        "async/staleness_min": float(min(ages)),
        "async/staleness_ratio": sum(age > 0 for age in ages) / len(ages),
        "async/staleness_violation_count": float(sum(age > bound for age in ages)),
        "async/partial_ratio": sum(len(versions) > 1 for versions in versions_of)
        / len(versions_of),
    }


def _versions(trajectory: Trajectory) -> set[int]:
    return {version for version in trajectory.weight_versions if version >= 0}
