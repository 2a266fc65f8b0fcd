"""One cluster as the reconciler sees it: row, attempt, and the observations of this tick.

Plain values without a session, so that `decide` and `transitions` are pure functions of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from api.clusters.store import ClusterState as ClusterState
from worker.skypilot.port import (
    CloudCluster,
    CloudError,
    CloudJob,
    CloudState,
    ClusterFacts,
    RequestReport,
)


class Cause(StrEnum):
    """The cluster's own reason to end its attempt; one that is no longer needed has none."""

    NO_CAPACITY = "no_capacity"
    UNSATISFIABLE = "unsatisfiable"
    REFUSED = "refused"
    MISMATCH = "mismatch"
    SETUP_FAILED = "setup_failed"
    LAUNCH_FAILED = "launch_failed"
    """It failed for an unknown reason, or was lost too often."""
    CLUSTER_LOST = "cluster_lost"
    """The cloud preempted it, or it is broken."""
    JOB_ENDED = "job_ended"
    """Its job ended without a report."""
    WALL_CLOCK_LIMIT = "wall_clock_limit"


@dataclass(frozen=True, slots=True)
class LaunchRecorded:
    """Our own commit: a launch is about to be called."""


@dataclass(frozen=True, slots=True)
class LaunchesListed:
    """Answer of `Clouds.list_launches`: ids of unfinished launches, oldest first."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterObserved:
    """Answer of `Clouds.get_cluster`; `cluster` is None where the cloud has none of that name."""

    cluster: CloudCluster | None


@dataclass(frozen=True, slots=True)
class JobsListed:
    """Answer of `Clouds.list_jobs`; None: the cluster exists but cannot list its jobs now."""

    jobs: tuple[CloudJob, ...] | None


@dataclass(frozen=True, slots=True)
class LaunchAccepted:
    """Answer of `Clouds.launch`."""

    request_id: str


@dataclass(frozen=True, slots=True)
class LaunchRejected:
    """Refusal of `Clouds.launch`: no request exists."""

    error: CloudError


@dataclass(frozen=True, slots=True)
class LaunchReported:
    """Answer of `Clouds.get_launch`."""

    report: RequestReport


@dataclass(frozen=True, slots=True)
class TerminationRequested:
    """Answer of `Clouds.terminate`: the request is taken, the cluster may exist for minutes."""

    request_id: str


@dataclass(frozen=True, slots=True)
class TerminationFault:
    """Answer of `Clouds.termination_fault`; None: the request has not failed."""

    message: str | None


@dataclass(frozen=True, slots=True)
class DuplicatesCancelled:
    """Answer of `Clouds.cancel_jobs`."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer, or none in time: the call may have taken effect all the same."""

    message: str


Observation: TypeAlias = (
    LaunchesListed
    | ClusterObserved
    | JobsListed
    | LaunchRecorded
    | LaunchAccepted
    | LaunchRejected
    | LaunchReported
    | TerminationRequested
    | TerminationFault
    | DuplicatesCancelled
    | Unreachable
)
"""Result of one executed action; folded into the view by `transitions.apply_observation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Answers of the clouds within one tick; a field that is None or False was not queried yet.

    They are never stored: clusters change without us, so the next tick queries again.
    """

    is_unreachable: bool = False
    unreachable_reason: str = ""
    is_launch_recorded: bool = False
    """This tick has committed that it will call a launch."""
    launches: tuple[str, ...] | None = None
    observed_cluster: ClusterObserved | None = None
    jobs: tuple[CloudJob, ...] | None = None
    are_jobs_unavailable: bool = False
    """The cluster could not list its jobs."""
    launch_report: RequestReport | None = None
    is_termination_requested: bool = False
    termination_fault: TerminationFault | None = None
    are_duplicates_cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A row of `clusters` joined with its attempt and run. Times are the database's.

    States: pending → provisioning → running → terminating → terminated. `ForgetRequest` leads back
    from provisioning to pending; terminating is entered from any state before it.
    """

    name: str
    job_name: str
    state: ClusterState = ClusterState.PENDING
    is_needed: bool = True
    """False once its attempt has ended, or the run was cancelled or paused."""
    has_predecessor: bool = False
    """Whether an earlier cluster of the run is not terminated yet."""
    is_api_unreachable: bool = False
    """For a pending cluster: its nodes would claim their plan at the API, and no API process is
    alive."""
    api_unreachable_at: datetime | None = None
    """The last time that no API process was alive while it was running and its plan unclaimed."""
    launch_requested_at: datetime | None = None
    """Committed before a launch is called; also set when its request turns out to be forgotten."""
    launch_tries: int = 0
    """Launches recorded (count)."""
    request_id: str | None = None
    job_id: int | None = None
    cluster: ClusterFacts | None = None
    running_at: datetime | None = None
    observed_state: CloudState | None = None
    """By the newest sweep that got an answer; None: the cluster did not exist."""
    seen_at: datetime | None = None
    """Time of that sweep."""
    missed_polls: int = 0
    """Sweeps in a row that got an answer without this cluster, up to the newest one and since the
    node's last heartbeat (count)."""
    unhealthy_since: datetime | None = None
    """First of the sweeps in a row that found it, but not UP, since the node's last heartbeat."""
    node_heartbeat_at: datetime | None = None
    """Last sign of life of its first node, over HTTP or through the blob store."""
    jobs_requested_at: datetime | None = None
    polls_without_job: int = 0
    """Job listings in a row without our job, since the node's last heartbeat (count)."""
    wall_limit_at: datetime | None = None
    termination_requested_at: datetime | None = None
    termination_request_id: str | None = None
    """The newest termination request."""
    terminating_at: datetime | None = None
    """Entry into the state terminating."""
    is_end_warned: bool = False
    """Whether its run was warned that the termination is overdue."""
    status_reason: str | None = None
    """Why the newest tick left it waiting; None: healthy, or terminated."""
    cause: Cause | None = None
    message: str | None = None
    observations: Observations = Observations()
    """Of this tick alone."""
