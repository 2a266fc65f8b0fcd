"""How old the weights are that drew what a step learns from."""

from __future__ import annotations

from statistics import fmean

from trainer.rollouts.stream import Taken
from trainer.types import Trajectory


def staleness_metrics(taken: Taken, *, version: int, bound: int) -> dict[str, float]:
    """Return `async/...` for the groups that the weights of `version` are about to learn from.

    The staleness of a trajectory is that of its oldest drawn token, in versions; the stream keeps
    it within `bound`, and every one beyond it is counted here.
    """
    drawn = [
        versions
        for group in taken.groups
        for rollout in group
        if (versions := _versions(rollout.trajectory))
    ]
    num_taken, num_dropped = len(taken.groups), len(taken.dropped)
    metrics = {
        "async/num_groups_ahead": float(taken.num_ahead),
        "async/keep_rate": num_taken / (num_taken + num_dropped),
    }
    if not drawn:
        return metrics
    ages = [version - min(versions) for versions in drawn]
    return metrics | {
        "async/staleness_mean": fmean(ages),
        "async/staleness_max": float(max(ages)),
        "async/staleness_min": float(min(ages)),
        "async/staleness_ratio": sum(age > 0 for age in ages) / len(ages),
        "async/staleness_violation_count": float(sum(age > bound for age in ages)),
        "async/partial_ratio": sum(len(versions) > 1 for versions in drawn) / len(drawn),
    }


def _versions(trajectory: Trajectory) -> set[int]:
    return {version for version in trajectory.weight_versions if version >= 0}
