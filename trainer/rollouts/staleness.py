"""How old the weights are that drew what a step learns from."""

from __future__ import annotations

from statistics import fmean

from trainer.rollouts.stream import Taken
from trainer.types import Trajectory


def staleness_metrics(taken: Taken, *, version: int) -> dict[str, float]:
    """Return `async/...` for the groups that the weights of `version` are about to learn from.

    The staleness of a trajectory is that of its oldest drawn token, in versions.
    """
    drawn = [
        versions
        for group in taken.groups
        for rollout in group
        if (versions := _versions(rollout.trajectory))
    ]
    metrics = {"async/num_groups_ahead": float(taken.num_ahead)}
    if not drawn:
        return metrics
    ages = [version - min(versions) for versions in drawn]
    return metrics | {
        "async/staleness_mean": fmean(ages),
        "async/staleness_max": float(max(ages)),
        "async/staleness_min": float(min(ages)),
        "async/partial_ratio": sum(len(versions) > 1 for versions in drawn) / len(drawn),
    }


def _versions(trajectory: Trajectory) -> set[int]:
    return {version for version in trajectory.weight_versions if version >= 0}
