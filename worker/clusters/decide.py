"""Decides the next action for one cluster: a pure function of its view and the time.

A tick of `reconciler` loops over `decide`, `execute` and `transitions.apply_observation` (or
`apply_transition`) until the action is `Wait`. A tick may be cut off after any action, repeated, or
lost. Only two things survive: the committed row, and the cluster's name, under which every launch
and every machine is found again. Three rules keep a run from paying for two clusters:

1. A launch is called only after a commit that it will be (`RecordLaunch`, then `LaunchCluster`).
2. It is not called while another launch of the name is unfinished, or may be.
3. It is not called while an earlier cluster of the run is not terminated.

One function per state below: `_pending`, `_provisioning`, `_running`, `_terminating`,
`_terminated`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from api.runs.deadlines import API_UNREACHABLE_GRACE
from worker.clusters.view import Cause, ClusterState, ClusterView
from worker.deadlines import (
    JOBS_POLL_INTERVAL,
    LAUNCH_GRACE,
    NO_RECHECK,
    NODE_SILENCE,
    RECHECK_LATER,
    RECHECK_SOON,
    SWEEP_FRESHNESS,
    TERMINATION_OVERDUE,
    TERMINATION_RETRY,
    UNHEALTHY_GRACE,
)
from worker.skypilot.port import (
    CloudError,
    CloudJob,
    ClusterFacts,
    ErrorKind,
    JobState,
    RequestState,
)

MAX_LAUNCHES = 5
"""Launches of one cluster; each after the first follows one that was lost."""
MAX_MISSED_POLLS = 2
"""Sweeps in a row without the cluster, its node silent, after which it counts as lost."""
MAX_POLLS_WITHOUT_JOB = 2
"""Job listings in a row without our job, `JOBS_POLL_INTERVAL` apart, before the job counts as
ended: right after a launch a listing may come too early."""


@dataclass(frozen=True, slots=True)
class ListLaunches:
    """Call `Clouds.list_launches`."""


@dataclass(frozen=True, slots=True)
class GetCluster:
    """Call `Clouds.get_cluster`."""


@dataclass(frozen=True, slots=True)
class ListJobs:
    """Call `Clouds.list_jobs`."""


@dataclass(frozen=True, slots=True)
class GetLaunch:
    """Call `Clouds.get_launch`."""

    request_id: str


@dataclass(frozen=True, slots=True)
class RecordLaunch:
    """Commit that a launch is about to be called."""


@dataclass(frozen=True, slots=True)
class LaunchCluster:
    """Call `Clouds.launch`."""


@dataclass(frozen=True, slots=True)
class CancelDuplicates:
    """Call `Clouds.cancel_jobs` for every job but the first."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TerminateCluster:
    """Call `Clouds.terminate`."""


@dataclass(frozen=True, slots=True)
class GetTerminationFault:
    """Call `Clouds.termination_fault`."""

    request_id: str


@dataclass(frozen=True, slots=True)
class AdoptLaunch:
    """Take over an unfinished launch of our name: → provisioning."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Drop a request id that the API server no longer knows, and search by name: → pending."""


@dataclass(frozen=True, slots=True)
class MarkRunning:
    """The cluster exists and has our job: → running."""

    job_id: int | None
    cluster: ClusterFacts | None


@dataclass(frozen=True, slots=True)
class MarkTerminating:
    """Give the cluster up: → terminating. With a cause its attempt ends too."""

    cause: Cause | None
    message: str


@dataclass(frozen=True, slots=True)
class MarkTerminated:
    """Nothing of the cluster exists any more: → terminated."""


@dataclass(frozen=True, slots=True)
class Wait:
    """End the tick; the next one is due after `pause`."""

    pause: timedelta
    why: str | None
    """Shown as the cluster's status reason; None where there is nothing to report."""


CloudAction: TypeAlias = (
    ListLaunches
    | GetCluster
    | ListJobs
    | GetLaunch
    | LaunchCluster
    | CancelDuplicates
    | TerminateCluster
    | GetTerminationFault
)
"""Calls over the port; each returns an observation."""
Transition: TypeAlias = AdoptLaunch | ForgetRequest | MarkRunning | MarkTerminating | MarkTerminated
"""Changes of the row alone."""
Action: TypeAlias = CloudAction | Transition | RecordLaunch | Wait

_REASON_BY_JOB: dict[JobState, str] = {
    JobState.WAITING: "the job has not started",
    JobState.SETTING_UP: "the node's environment is being set up",
    JobState.RUNNING: "the job is running, but its node sends no heartbeat",
}
"""Status reason of a cluster with a silent node and a live job."""
CAUSES: dict[ErrorKind, Cause] = {
    ErrorKind.NO_CAPACITY: Cause.NO_CAPACITY,
    ErrorKind.UNSATISFIABLE: Cause.UNSATISFIABLE,
    ErrorKind.REFUSED: Cause.REFUSED,
    ErrorKind.MISMATCH: Cause.MISMATCH,
    ErrorKind.SETUP_FAILED: Cause.SETUP_FAILED,
    ErrorKind.UNKNOWN: Cause.LAUNCH_FAILED,
}


def decide(view: ClusterView, now: datetime) -> Action:
    """Return the next action; total over all views."""
    # Unreachable is not dead: without an answer nothing about a cluster may change.
    if view.observations.is_unreachable:
        pause = RECHECK_LATER if view.state is ClusterState.RUNNING else RECHECK_SOON
        reason = view.observations.unreachable_reason
        detail = f": {reason}" if reason else ""
        return Wait(pause, f"SkyPilot's API server does not answer{detail}")
    return _BY_STATE[view.state](view, now)


def _pending(view: ClusterView, now: datetime) -> Action:
    """Launch it, unless a launch or a cluster of its name exists already."""
    end = _end_if_due(view, now)
    if end is not None:
        return end
    if view.has_predecessor:
        return Wait(RECHECK_SOON, "an earlier cluster of the run is not terminated yet")
    report = view.observations.launch_report
    if report is not None and report.error is not None:
        return _launch_failed(report.error)
    is_first = view.launch_requested_at is None or (
        view.observations.is_launch_recorded and view.launch_tries == 1
    )
    if is_first:
        # A launch is recorded before it is called: nothing of this name can exist yet.
        return _launch(view, now)
    return _adopt_existing(view) or _launch(view, now)


def _adopt_existing(view: ClusterView) -> Action | None:
    """Search by name: for an unfinished launch first, then for the cluster itself.

    The order matters: a launch that finishes between the two queries has left its cluster, which
    the second one finds. None where neither exists, or the cluster lacks our job.
    """
    observations = view.observations
    if observations.launches is None:
        return ListLaunches()
    if observations.launches:
        return AdoptLaunch(observations.launches[0])
    if observations.observed_cluster is None:
        return GetCluster()
    observed = observations.observed_cluster.cluster
    if observed is None:
        return None
    if view.node_heartbeat_at is not None:
        # Its node has claimed the attempt, so the job exists: listing jobs takes up to minutes.
        return MarkRunning(None, observed.cluster)
    if observations.jobs is None and not observations.are_jobs_unavailable:
        return ListJobs()
    own = _own_jobs(view)
    return MarkRunning(own[0].id, observed.cluster) if own else None


def _launch(view: ClusterView, now: datetime) -> Action:
    """Record a launch, then call it; wait while one without an answer may still take effect."""
    if view.observations.is_launch_recorded:
        return LaunchCluster()
    if _may_launch_be_in_flight(view, now):
        return Wait(RECHECK_SOON, "an earlier launch request may still take effect")
    if view.launch_tries >= MAX_LAUNCHES:
        return MarkTerminating(
            Cause.LAUNCH_FAILED,
            f"the cluster was launched {view.launch_tries} times, and every launch was lost",
        )
    # Existing machines cost money even while no API process is alive, so those are adopted.
    if view.is_api_unreachable and not _is_observed(view):
        return Wait(
            RECHECK_LATER,
            "no API process is alive to give its nodes the plan: it is not launched yet",
        )
    return RecordLaunch()


def _provisioning(view: ClusterView, now: datetime) -> Action:
    """Follow the launch request to its end."""
    end = _end_if_due(view, now)
    if end is not None:
        return end
    if view.request_id is None:
        return ForgetRequest()
    report = view.observations.launch_report
    if report is None:
        return GetLaunch(view.request_id)
    if report.state is RequestState.DONE:
        return MarkRunning(report.job_id, report.cluster)
    if report.state is RequestState.FAILED:
        return _launch_failed(report.error)
    if report.state is RequestState.FORGOTTEN:
        # The API server restarted. The launch may have succeeded: only the name tells.
        return ForgetRequest()
    return Wait(RECHECK_SOON, "the launch is in progress")


def _running(view: ClusterView, now: datetime) -> Action:
    """Leave a node with heartbeats alone; check the cluster of a silent one."""
    end = _end_if_due(view, now)
    if end is not None:
        return end
    # Two launches of one name give one cluster with two jobs: two trainers of one attempt.
    duplicates = tuple(job.id for job in _live_jobs(_own_jobs(view))[1:])
    if duplicates and not view.observations.are_duplicates_cancelled:
        return CancelDuplicates(duplicates)
    if not _is_silent(view, now):
        may_be_two = view.launch_tries > 1 and view.jobs_requested_at is None
        return ListJobs() if may_be_two else Wait(RECHECK_LATER, None)
    return _check_silent(view, now)


def _check_silent(view: ClusterView, now: datetime) -> Action:
    """Check a cluster whose node is silent: by the sweeps first, then by its job.

    Silence alone proves nothing: a network between node and service may be down while the trainer
    works. A cluster ends only when its cloud or its job says so.
    """
    verdict = _judge_by_sweeps(view, now) if _has_fresh_sweep(view, now) else None
    if verdict is not None:
        return verdict
    if view.observations.are_jobs_unavailable:
        return Wait(
            RECHECK_LATER, "the cluster is not up to list its jobs: it may recover by itself"
        )
    if view.observations.jobs is not None:
        return _judge_by_job(view, now)
    if view.jobs_requested_at is not None and now - view.jobs_requested_at < JOBS_POLL_INTERVAL:
        return Wait(
            RECHECK_LATER,
            view.status_reason or "its node sends no heartbeat: its job is checked again soon",
        )
    return ListJobs()


def _judge_by_sweeps(view: ClusterView, now: datetime) -> Action | None:
    """Conclude from the newest sweeps; None where they found the cluster UP."""
    if view.missed_polls >= MAX_MISSED_POLLS:
        return MarkTerminating(
            Cause.CLUSTER_LOST,
            f"the cloud did not list the cluster {view.missed_polls} times in a row, and its first"
            " node sends no heartbeat",
        )
    if view.missed_polls:
        return Wait(RECHECK_LATER, "the cloud did not list the cluster: it is queried once more")
    if view.unhealthy_since is not None:
        if now - view.unhealthy_since >= UNHEALTHY_GRACE:
            return MarkTerminating(
                Cause.CLUSTER_LOST,
                "the cluster is stopped or broken, and its node sends no heartbeat",
            )
        return Wait(RECHECK_LATER, "the cluster is not up: it may recover by itself")
    return None


def _has_fresh_sweep(view: ClusterView, now: datetime) -> bool:
    """True where a sweep is recent, and newer than the node's last heartbeat."""
    swept_at, heartbeat_at = view.seen_at, view.node_heartbeat_at
    if swept_at is None or now - swept_at >= SWEEP_FRESHNESS:
        return False
    return heartbeat_at is None or swept_at > heartbeat_at


def _judge_by_job(view: ClusterView, now: datetime) -> Action:
    """Conclude from the state of our job: wait for a live one, give up one that ended."""
    own = _own_jobs(view)
    if live := _live_jobs(own):
        return Wait(RECHECK_LATER, _REASON_BY_JOB[live[0].state])
    if own and own[-1].state is JobState.SETUP_FAILED:
        return MarkTerminating(
            Cause.SETUP_FAILED, "the set-up of a node failed: its log has the reason"
        )
    if not own and view.polls_without_job < MAX_POLLS_WITHOUT_JOB:
        return Wait(RECHECK_LATER, "its job does not exist: it is queried once more")
    state = f"its job is {own[-1].state.value}" if own else "its job does not exist"
    if (
        view.node_heartbeat_at is None
        and view.api_unreachable_at
        and now - view.api_unreachable_at < API_UNREACHABLE_GRACE
    ):
        # Not the cluster's fault: `api.scheduling` counts no recovery for this.
        return MarkTerminating(
            Cause.JOB_ENDED, f"{state}: no API process was alive to give its node the plan"
        )
    return MarkTerminating(Cause.JOB_ENDED, f"{state}, and the node reported no end")


def _terminating(view: ClusterView, now: datetime) -> Action:
    """Request termination, then prove that nothing is left.

    Proof is, after the request: no unfinished launch, then no cluster of the name. The order
    matters: a launch that finishes in between has left a cluster, which the second query finds.
    The request goes out before any query: slow answers must not keep machines running.
    """
    observations = view.observations
    if view.launch_requested_at is None and view.running_at is None:
        return MarkTerminated()
    requested_at = view.termination_requested_at
    is_due = requested_at is None or now - requested_at >= TERMINATION_RETRY
    if not observations.is_termination_requested and is_due:
        return TerminateCluster()
    # Machines take minutes to go, so the first request is not followed by queries at once. A
    # repeated one is: with late ticks every tick may be one that repeats the request.
    is_first = view.terminating_at is None or now - view.terminating_at < TERMINATION_RETRY
    if (
        observations.is_termination_requested
        and observations.observed_cluster is None
        and view.running_at is not None
        and is_first
    ):
        return Wait(RECHECK_LATER, view.status_reason or "termination was requested just now")
    if _may_request_be_forgotten(view):
        return (
            GetLaunch(view.request_id)
            if observations.launch_report is None and view.request_id
            else ForgetRequest()
        )
    return _check_remains(view, now) or MarkTerminated()


def _check_remains(view: ClusterView, now: datetime) -> Action | None:
    """Query what is left of the cluster; None where nothing is."""
    observations = view.observations
    if observations.launches is None:
        return ListLaunches()
    if observations.launches:
        return Wait(RECHECK_SOON, "a launch of it is still in progress")
    if observations.observed_cluster is None:
        return GetCluster()
    if observations.observed_cluster.cluster is not None:
        if observations.termination_fault is None and view.termination_request_id is not None:
            return GetTerminationFault(view.termination_request_id)
        fault = observations.termination_fault.message if observations.termination_fault else None
        return Wait(RECHECK_LATER, f"it still exists: {fault}" if fault else "it still exists")
    if _may_launch_be_in_flight(view, now):
        return Wait(RECHECK_SOON, "an earlier launch request may still take effect")
    return None


def _terminated(view: ClusterView, now: datetime) -> Action:
    """Do nothing: the state is final."""
    del view, now
    return Wait(NO_RECHECK, None)


def is_termination_overdue(view: ClusterView, now: datetime) -> bool:
    """True once a cluster has been terminating too long and its run is not warned yet."""
    is_long = view.terminating_at is not None and now - view.terminating_at >= TERMINATION_OVERDUE
    return view.state is ClusterState.TERMINATING and is_long and not view.is_end_warned


_BY_STATE: dict[ClusterState, Callable[[ClusterView, datetime], Action]] = {
    ClusterState.PENDING: _pending,
    ClusterState.PROVISIONING: _provisioning,
    ClusterState.RUNNING: _running,
    ClusterState.TERMINATING: _terminating,
    ClusterState.TERMINATED: _terminated,
}


def _end_if_due(view: ClusterView, now: datetime) -> Action | None:
    """Terminate a cluster that is no longer needed or has reached its time limit; else None."""
    if not view.is_needed:
        return MarkTerminating(None, "it is no longer needed")
    if view.wall_limit_at is not None and now >= view.wall_limit_at:
        return MarkTerminating(
            Cause.WALL_CLOCK_LIMIT, "the cluster reached backend.skypilot.max_hours"
        )
    return None


def _launch_failed(error: CloudError | None) -> Action:
    """Terminate after a failed launch: machines of a partial one may exist."""
    if error is None:
        return MarkTerminating(Cause.LAUNCH_FAILED, "the launch failed without a reason")
    return MarkTerminating(CAUSES[error.kind], error.message)


def _is_observed(view: ClusterView) -> bool:
    """True where this tick found the cluster at its cloud."""
    observed = view.observations.observed_cluster
    return observed is not None and observed.cluster is not None


def _may_launch_be_in_flight(view: ClusterView, now: datetime) -> bool:
    """True while a launch that got no answer may still take effect."""
    requested_at = view.launch_requested_at
    is_recent = requested_at is not None and now - requested_at < LAUNCH_GRACE
    return is_recent and view.request_id is None


def _may_request_be_forgotten(view: ClusterView) -> bool:
    """True where a process that outlived its API server may still carry out our launch."""
    report = view.observations.launch_report
    if view.running_at is not None or view.request_id is None:
        return False
    return report is None or report.state is RequestState.FORGOTTEN


def _is_silent(view: ClusterView, now: datetime) -> bool:
    """True where the node sent no heartbeat for `NODE_SILENCE`, counted from running at least."""
    times = (view.node_heartbeat_at, view.running_at)
    newest = max((time for time in times if time), default=None)
    return newest is None or now - newest >= NODE_SILENCE


def _own_jobs(view: ClusterView) -> tuple[CloudJob, ...]:
    """Return the attempt's jobs: live ones first, then oldest first."""
    own = [job for job in view.observations.jobs or () if job.name == view.job_name]
    return tuple(sorted(own, key=lambda job: (not job.state.is_live, job.id)))


def _live_jobs(jobs: tuple[CloudJob, ...]) -> tuple[CloudJob, ...]:
    return tuple(job for job in jobs if job.state.is_live)
