"""Carrying out an action over the port; nobody's answer is a fact too."""

from __future__ import annotations

from collections.abc import Callable

from worker.clusters.base import CloudError, Clouds, CloudsUnreachable, ClusterPlan
from worker.clusters.decide import (
    AskDown,
    AskDownFault,
    AskJobs,
    AskLaunches,
    AskRequest,
    CancelDuplicates,
    CloudAction,
    Launch,
    Look,
)
from worker.clusters.view import (
    DownAsked,
    DownFault,
    DuplicatesCancelled,
    Fact,
    Jobs,
    Launched,
    Launches,
    Looked,
    NotLaunched,
    Reported,
    Unreachable,
)


def perform(
    action: CloudAction, clouds: Clouds, name: str, plan: Callable[[], ClusterPlan]
) -> Fact:
    """Call what the action says for the cluster `name`, and return what it found out.

    Only a launch needs a plan: one that cannot be made keeps no cluster from being ended.
    """
    try:
        return _asked(action, clouds, name, plan)
    except CloudsUnreachable as fault:
        return Unreachable(str(fault))
    except CloudError as refusal:
        return NotLaunched(refusal)


def _asked(action: CloudAction, clouds: Clouds, name: str, plan: Callable[[], ClusterPlan]) -> Fact:
    match action:
        case AskLaunches():
            return Launches(clouds.open_launches(name))
        case Look():
            return Looked(clouds.sighting(name))
        case AskJobs():
            return Jobs(clouds.jobs(name))
        case AskRequest(request_id):
            return Reported(clouds.request(request_id))
        case Launch():
            return Launched(clouds.launch(plan()))
    return _ended(action, clouds, name)


def _ended(action: CancelDuplicates | AskDown | AskDownFault, clouds: Clouds, name: str) -> Fact:
    match action:
        case CancelDuplicates(ids):
            clouds.cancel_jobs(name, ids)
            return DuplicatesCancelled(ids)
        case AskDown():
            return DownAsked(clouds.down(name))
        case AskDownFault(request_id):
            return DownFault(clouds.down_fault(request_id))
