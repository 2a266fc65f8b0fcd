"""What a cluster is after an action: facts of the clouds, and changes of our own. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from worker.clusters.base import JobSighting, RequestReport, RequestState, SeenState, Sighting
from worker.clusters.decide import Adopt, BecomeUp, BeGone, End, Forget, OwnAction
from worker.clusters.view import (
    ClusterState,
    ClusterView,
    DownAsked,
    DownFault,
    DuplicatesCancelled,
    Fact,
    Jobs,
    Known,
    Launched,
    Launches,
    Looked,
    NotLaunched,
    Recorded,
    Reported,
    Unreachable,
)


def begin(view: ClusterView) -> ClusterView:
    """Return the view at the start of a tick: nothing is known yet."""
    return replace(view, known=Known())


def learn(view: ClusterView, fact: Fact, now: datetime) -> ClusterView:
    """Return the view after a fact; nobody's answer changes nothing but that."""
    match fact:
        case Recorded():
            known = replace(view.known, is_recorded=True)
            tries = view.launch_tries + 1
            return replace(view, launch_asked_at=now, launch_tries=tries, known=known)
        case Launched(request_id):
            return replace(view, state=ClusterState.LAUNCHING, request_id=request_id)
        case Jobs(jobs):
            view = replace(view, jobs_asked_at=now, num_jobless=_jobless(view, jobs))
        case DownAsked(request_id):
            view = replace(view, down_asked_at=now, down_request_id=request_id)
    return replace(view, known=_known(view.known, fact))


def _jobless(view: ClusterView, jobs: tuple[JobSighting, ...] | None) -> int:
    """How many answers in a row had no job of ours; one that could not be given changes nothing."""
    asked, heard = view.jobs_asked_at, view.node_heard_at
    so_far = 0 if asked is not None and heard is not None and heard > asked else view.num_jobless
    if jobs is None:
        return so_far
    return 0 if any(job.name == view.job_name for job in jobs) else so_far + 1


def _known(known: Known, fact: Fact) -> Known:
    match fact:
        case Unreachable(message):
            return replace(known, is_unreachable=True, why_unreachable=message)
        case Launches(ids):
            return replace(known, launches=ids)
        case Looked():
            return replace(known, looked=fact)
        case Jobs(jobs):
            return replace(known, jobs=jobs, is_not_up=jobs is None)
        case Reported(report):
            return replace(known, report=report)
        case NotLaunched(error):
            state = RequestState.FAILED
            report = RequestReport(state=state, error=error, offers=error.offers)
            return replace(known, report=report)
    return _told(known, fact)


def _told(known: Known, fact: Fact) -> Known:
    match fact:
        case DownAsked():
            return replace(known, is_down_asked=True)
        case DownFault():
            return replace(known, down_fault=fact)
        case DuplicatesCancelled():
            return replace(known, are_duplicates_cancelled=True)
    return known


def enact(view: ClusterView, action: OwnAction, now: datetime) -> ClusterView:
    """Return the view after a change that needs no cloud."""
    match action:
        case Adopt(request_id):
            return replace(view, state=ClusterState.LAUNCHING, request_id=request_id)
        case Forget():
            was_launching = view.state is ClusterState.LAUNCHING
            return replace(
                view,
                state=ClusterState.WANTED if was_launching else view.state,
                request_id=None,
                launch_asked_at=now,
                known=replace(view.known, report=None, launches=None, looked=None),
            )
        case BecomeUp(job_id, cluster):
            return replace(
                view,
                state=ClusterState.UP,
                job_id=job_id,
                cluster=cluster or view.cluster,
                up_at=view.up_at or now,
                seen_state=SeenState.UP,
                num_unseen=0,
                unsound_since=None,
            )
        case End(cause, message):
            ending = ClusterState.ENDING
            return replace(view, state=ending, ending_at=now, cause=cause, message=message)
        case BeGone():
            return replace(view, state=ClusterState.GONE, waits_for=None)


def sweep(view: ClusterView, sighting: Sighting | None, now: datetime) -> ClusterView:
    """Return the view after a sweep that got an answer; one that got none is not folded in.

    What was seen before the node was heard last does not count with it.
    """
    heard, seen = view.node_heard_at, view.seen_at
    if heard is not None and (seen is None or heard > seen):
        view = replace(view, num_unseen=0, unsound_since=None)
    if sighting is None:
        unseen = view.num_unseen + 1
        return replace(view, seen_state=None, seen_at=now, num_unseen=unseen, unsound_since=None)
    is_up = sighting.state is SeenState.UP
    return replace(
        view,
        seen_state=sighting.state,
        seen_at=now,
        num_unseen=0,
        unsound_since=None if is_up else view.unsound_since or now,
        cluster=sighting.cluster or view.cluster,
    )
