"""Parses SkyPilot's answers into the port's plain values.

The shapes are those of skypilot 0.14.1. Pure: nothing here imports sky.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from worker.skypilot.port import CloudJob, ClusterFacts, JobState

_JOBS = {
    "INIT": JobState.WAITING,
    "PENDING": JobState.WAITING,
    "SETTING_UP": JobState.SETTING_UP,
    "RUNNING": JobState.RUNNING,
    "SUCCEEDED": JobState.SUCCEEDED,
    "FAILED_SETUP": JobState.SETUP_FAILED,
    "CANCELLED": JobState.CANCELLED,
}
"""By SkyPilot's job status; every other status means failed."""


def jobs_of(queue: Iterable[Mapping[str, Any]]) -> tuple[CloudJob, ...]:
    """Return the jobs of a cluster's queue, oldest first."""
    jobs = [
        CloudJob(
            id=each["job_id"],
            name=each["job_name"],
            state=_JOBS.get(each["status"].value, JobState.FAILED),
        )
        for each in queue
    ]
    return tuple(sorted(jobs, key=lambda job: job.id))


def hourly_of(report: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return USD an hour of the existing clusters in a cost report, by name."""
    return {
        each["name"]: round(each["total_cost"] / each["duration"] * 3600.0, 4)
        for each in report
        if each["status"] is not None and each["duration"] and each["total_cost"]
    }


class Handle(Protocol):
    """SkyPilot's handle of a cluster."""

    launched_resources: Any
    launched_nodes: int


def facts_of(handle: Handle, hourly_usd: float | None) -> ClusterFacts | None:
    """Return the rented machines; None where SkyPilot does not know them."""
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
