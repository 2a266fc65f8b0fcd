"""What SkyPilot's answers say, as plain values.

The shapes are those of skypilot 0.14.1. Pure: nothing here imports sky.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from worker.clusters.base import ClusterFacts, JobSighting, JobState

_JOBS = {
    "INIT": JobState.WAITING,
    "PENDING": JobState.WAITING,
    "SETTING_UP": JobState.SETTING_UP,
    "RUNNING": JobState.RUNNING,
    "SUCCEEDED": JobState.SUCCEEDED,
    "FAILED_SETUP": JobState.SETUP_FAILED,
    "CANCELLED": JobState.CANCELLED,
}
"""By SkyPilot's word for it; whatever else there is has failed."""


def jobs_of(queue: Iterable[Mapping[str, Any]]) -> tuple[JobSighting, ...]:
    """Return the jobs of a cluster's queue, oldest first."""
    jobs = [
        JobSighting(
            id=each["job_id"],
            name=each["job_name"],
            state=_JOBS.get(each["status"].value, JobState.FAILED),
        )
        for each in queue
    ]
    return tuple(sorted(jobs, key=lambda job: job.id))


def hourly_of(report: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return USD an hour of the clusters in a report of costs that are there."""
    return {
        each["name"]: round(each["total_cost"] / each["duration"] * 3600.0, 4)
        for each in report
        if each["status"] is not None and each["duration"] and each["total_cost"]
    }


class Handle(Protocol):
    """A cluster, as SkyPilot holds it."""

    launched_resources: Any
    launched_nodes: int


def facts_of(handle: Handle, hourly_usd: float | None) -> ClusterFacts | None:
    """Return what was rented; null where nothing is known of it."""
    rented = handle.launched_resources
    if rented is None or rented.cloud is None:
        return None
    return ClusterFacts(
        infra=str(rented.cloud).lower(),
        region=rented.region,
        sku=rented.instance_type,
        num_nodes=handle.launched_nodes,
        hourly_usd=hourly_usd,
    )
