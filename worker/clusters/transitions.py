"""The cluster's view after an action: after an observation of the clouds, or a transition. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from worker.clusters.decide import (
    AdoptLaunch,
    ForgetRequest,
    MarkRunning,
    MarkTerminated,
    MarkTerminating,
    Transition,
)
from worker.clusters.view import (
    ClusterObserved,
    ClusterState,
    ClusterView,
    DuplicatesCancelled,
    JobsListed,
    LaunchAccepted,
    LaunchesListed,
    LaunchRecorded,
    LaunchRejected,
    LaunchReported,
    Observation,
    Observations,
    TerminationFault,
    TerminationRequested,
    Unreachable,
)
from worker.skypilot.port import CloudCluster, CloudJob, CloudState, RequestReport, RequestState


def begin(view: ClusterView) -> ClusterView:
    """Return the view at the start of a tick, without observations."""
    return replace(view, observations=Observations())


def apply_observation(view: ClusterView, observation: Observation, now: datetime) -> ClusterView:
    """Return the view after an observation; `Unreachable` changes nothing that is stored."""
    match observation:
        case LaunchRecorded():
            observations = replace(view.observations, is_launch_recorded=True)
            tries = view.launch_tries + 1
            return replace(
                view, launch_requested_at=now, launch_tries=tries, observations=observations
            )
        case LaunchAccepted(request_id):
            return replace(view, state=ClusterState.PROVISIONING, request_id=request_id)
        case JobsListed(jobs):
            polls = _polls_without_job(view, jobs)
            view = replace(view, jobs_requested_at=now, polls_without_job=polls)
        case TerminationRequested(request_id):
            view = replace(view, termination_requested_at=now, termination_request_id=request_id)
    return replace(view, observations=_add_observation(view.observations, observation))


def _polls_without_job(view: ClusterView, jobs: tuple[CloudJob, ...] | None) -> int:
    """Count job listings in a row without our job, since the node's last heartbeat.

    A cluster that could not list its jobs (None) leaves the count as it is.
    """
    polled_at, heartbeat = view.jobs_requested_at, view.node_heartbeat_at
    is_outdated = polled_at is not None and heartbeat is not None and heartbeat > polled_at
    so_far = 0 if is_outdated else view.polls_without_job
    if jobs is None:
        return so_far
    return 0 if any(job.name == view.job_name for job in jobs) else so_far + 1


def _add_observation(observations: Observations, observation: Observation) -> Observations:
    """Add what one answer says about launches, cluster and jobs."""
    match observation:
        case Unreachable(message):
            return replace(observations, is_unreachable=True, unreachable_reason=message)
        case LaunchesListed(ids):
            return replace(observations, launches=ids)
        case ClusterObserved():
            return replace(observations, observed_cluster=observation)
        case JobsListed(jobs):
            return replace(observations, jobs=jobs, are_jobs_unavailable=jobs is None)
        case LaunchReported(report):
            return replace(observations, launch_report=report)
        case LaunchRejected(error):
            state = RequestState.FAILED
            report = RequestReport(state=state, error=error, offers=error.offers)
            return replace(observations, launch_report=report)
    return _add_end_observation(observations, observation)


def _add_end_observation(observations: Observations, observation: Observation) -> Observations:
    """Add what one answer says about terminating and cancelling."""
    match observation:
        case TerminationRequested():
            return replace(observations, is_termination_requested=True)
        case TerminationFault():
            return replace(observations, termination_fault=observation)
        case DuplicatesCancelled():
            return replace(observations, are_duplicates_cancelled=True)
    return observations


def apply_transition(view: ClusterView, action: Transition, now: datetime) -> ClusterView:
    """Return the view after a change of the row that calls no cloud."""
    match action:
        case AdoptLaunch(request_id):
            return replace(view, state=ClusterState.PROVISIONING, request_id=request_id)
        case ForgetRequest():
            was_provisioning = view.state is ClusterState.PROVISIONING
            return replace(
                view,
                state=ClusterState.PENDING if was_provisioning else view.state,
                request_id=None,
                # From now on: a process that outlived its API server may still finish the launch.
                launch_requested_at=now,
                observations=replace(
                    view.observations, launch_report=None, launches=None, observed_cluster=None
                ),
            )
        case MarkRunning(job_id, cluster):
            return replace(
                view,
                state=ClusterState.RUNNING,
                job_id=job_id,
                cluster=cluster or view.cluster,
                running_at=view.running_at or now,
                observed_state=CloudState.UP,
                missed_polls=0,
                unhealthy_since=None,
            )
        case MarkTerminating(cause, message):
            terminating = ClusterState.TERMINATING
            return replace(
                view, state=terminating, terminating_at=now, cause=cause, message=message
            )
        case MarkTerminated():
            return replace(view, state=ClusterState.TERMINATED, status_reason=None)


def apply_sweep(view: ClusterView, observed: CloudCluster | None, now: datetime) -> ClusterView:
    """Return the view after a sweep that got an answer; one without an answer changes nothing.

    Counts from before the node's last heartbeat start again: a live node disproves them.
    """
    heartbeat, seen = view.node_heartbeat_at, view.seen_at
    if heartbeat is not None and (seen is None or heartbeat > seen):
        view = replace(view, missed_polls=0, unhealthy_since=None)
    if observed is None:
        missed = view.missed_polls + 1
        return replace(
            view, observed_state=None, seen_at=now, missed_polls=missed, unhealthy_since=None
        )
    is_up = observed.state is CloudState.UP
    return replace(
        view,
        observed_state=observed.state,
        seen_at=now,
        missed_polls=0,
        unhealthy_since=None if is_up else view.unhealthy_since or now,
        cluster=observed.cluster or view.cluster,
    )
