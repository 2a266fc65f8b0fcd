"""Executes an action over the port to the clouds; a missing answer is an observation too."""

from __future__ import annotations

from collections.abc import Callable

from worker.clusters.decide import (
    CancelDuplicates,
    CloudAction,
    GetCluster,
    GetLaunch,
    GetTerminationFault,
    LaunchCluster,
    ListJobs,
    ListLaunches,
    TerminateCluster,
)
from worker.clusters.view import (
    ClusterObserved,
    DuplicatesCancelled,
    JobsListed,
    LaunchAccepted,
    LaunchesListed,
    LaunchRejected,
    LaunchReported,
    Observation,
    TerminationFault,
    TerminationRequested,
    Unreachable,
)
from worker.skypilot.port import CloudError, Clouds, CloudsUnreachable, ClusterPlan


def execute(
    action: CloudAction, clouds: Clouds, name: str, plan: Callable[[], ClusterPlan]
) -> Observation:
    """Call the clouds for the cluster `name` and return the observation.

    Only a launch needs the plan: one that cannot be made must not keep a cluster from terminating.
    """
    try:
        return _call(action, clouds, name, plan)
    except CloudsUnreachable as fault:
        return Unreachable(str(fault))
    except CloudError as refusal:
        return LaunchRejected(refusal)


def _call(
    action: CloudAction, clouds: Clouds, name: str, plan: Callable[[], ClusterPlan]
) -> Observation:
    match action:
        case ListLaunches():
            return LaunchesListed(clouds.list_launches(name))
        case GetCluster():
            return ClusterObserved(clouds.get_cluster(name))
        case ListJobs():
            return JobsListed(clouds.list_jobs(name))
        case GetLaunch(request_id):
            return LaunchReported(clouds.get_launch(request_id))
        case LaunchCluster():
            return LaunchAccepted(clouds.launch(plan()))
    return _call_end(action, clouds, name)


def _call_end(
    action: CancelDuplicates | TerminateCluster | GetTerminationFault, clouds: Clouds, name: str
) -> Observation:
    match action:
        case CancelDuplicates(ids):
            clouds.cancel_jobs(name, ids)
            return DuplicatesCancelled(ids)
        case TerminateCluster():
            return TerminationRequested(clouds.terminate(name))
        case GetTerminationFault(request_id):
            return TerminationFault(clouds.termination_fault(request_id))
