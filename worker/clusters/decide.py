"""What to do next about one cluster: a pure decision over what is known, and the time.

A tick loops: `decide`, carry out, `fold.learn` or `fold.enact`, until it is told to wait. It may be
cut off after any action, be repeated, or be lost: what holds then is what was committed, and the
name of the cluster, by which whatever was asked for is found again. No launch is called before it
is committed that it will be, none while another of the name is under way or may be, and none while
an earlier cluster of the run is not gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from api.clusters.asking import SHUT_OUT
from worker.clusters.base import (
    CloudError,
    ClusterFacts,
    ErrorKind,
    JobSighting,
    JobState,
    RequestState,
)
from worker.clusters.view import Cause, ClusterState, ClusterView

LAUNCH_GRACE = timedelta(seconds=180)
"""So long after it was recorded a launch may still reach the API server, or be finished by one of
its processes that outlived it: longer than any call's deadline (75 s), and clocks may differ."""
MAX_LAUNCHES = 5
"""Of one cluster; each one more was lost on its way."""
NODE_SILENT = timedelta(seconds=120)
"""A first node that was not heard for so long may be gone: then its cluster is looked at."""
JOBS_EVERY = timedelta(seconds=60)
"""Asking for jobs takes seconds."""
UNSEEN_ENOUGH = 2
"""Sweeps in a row that did not find a cluster whose node is silent."""
SEEN_LATELY = timedelta(minutes=3)
"""What a sweep saw longer ago is not known any more: it looks every 15 s, and its answer may take a
minute. Then the cluster's job is asked for."""
UNSOUND_ENOUGH = timedelta(minutes=5)
"""A cluster that is there, but not up, while its node is silent."""
JOBLESS_ENOUGH = 2
"""Answers in a row without our job, at least `JOBS_EVERY` apart, of a cluster that is up."""
DOWN_AGAIN = timedelta(seconds=60)
"""A cluster that is still there so long after it was to end is told again."""
STUCK = timedelta(minutes=10)
"""A cluster that is to go and has not by then is told of: it may be paid for."""
SOON, LATER, IDLE = timedelta(seconds=3), timedelta(seconds=15), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AskLaunches:
    """Call `Clouds.open_launches`."""


@dataclass(frozen=True, slots=True)
class Look:
    """Call `Clouds.sighting`."""


@dataclass(frozen=True, slots=True)
class AskJobs:
    """Call `Clouds.jobs`."""


@dataclass(frozen=True, slots=True)
class AskRequest:
    """Call `Clouds.request`."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Record:
    """Commit that a launch will be called."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Call `Clouds.launch`."""


@dataclass(frozen=True, slots=True)
class CancelDuplicates:
    """Call `Clouds.cancel_jobs`."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskDown:
    """Call `Clouds.down`."""


@dataclass(frozen=True, slots=True)
class AskDownFault:
    """Call `Clouds.down_fault`."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """A launch of the name is under way: it is ours."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Forget:
    """The request is not known any more: go by the name."""


@dataclass(frozen=True, slots=True)
class BecomeUp:
    """The cluster is there, with the job."""

    job_id: int | None
    cluster: ClusterFacts | None


@dataclass(frozen=True, slots=True)
class End:
    """End it; with a cause its attempt ends too, without one that is why."""

    cause: Cause | None
    message: str


@dataclass(frozen=True, slots=True)
class BeGone:
    """Nothing of it is left."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before so long."""

    pause: timedelta
    why: str | None
    """None where there is nothing to say."""


CloudAction: TypeAlias = (
    AskLaunches | Look | AskJobs | AskRequest | Launch | CancelDuplicates | AskDown | AskDownFault
)
"""Calls over the port; each gives a fact."""
OwnAction: TypeAlias = Adopt | Forget | BecomeUp | End | BeGone
"""Changes of the row alone."""
Action: TypeAlias = CloudAction | OwnAction | Record | Wait

_SILENT_WHILE: dict[JobState, str] = {
    JobState.WAITING: "the job has not begun",
    JobState.SETTING_UP: "its environment is being set up",
    JobState.RUNNING: "the job is at work, its node silent",
}
"""What a cluster waits for whose node says nothing and whose job is alive."""
CAUSES: dict[ErrorKind, Cause] = {
    ErrorKind.NO_CAPACITY: Cause.NO_CAPACITY,
    ErrorKind.UNSATISFIABLE: Cause.UNSATISFIABLE,
    ErrorKind.REFUSED: Cause.REFUSED,
    ErrorKind.MISMATCH: Cause.MISMATCH,
    ErrorKind.SETUP_FAILED: Cause.SETUP_FAILED,
    ErrorKind.UNKNOWN: Cause.LAUNCH_FAILED,
}


def decide(view: ClusterView, now: datetime) -> Action:
    """Return the one thing to do next; total over all views."""
    if view.known.is_unreachable:
        pause = LATER if view.state is ClusterState.UP else SOON
        why = view.known.why_unreachable
        said = f": {why}" if why else ""
        return Wait(pause, f"the clouds' API server does not answer{said}")
    return _BY_STATE[view.state](view, now)


def _wanted(view: ClusterView, now: datetime) -> Action:
    over = _over(view, now)
    if over is not None:
        return over
    if view.has_predecessor:
        return Wait(SOON, "an earlier cluster of the run is not gone")
    report = view.known.report
    if report is not None and report.error is not None:
        return _failed(report.error)
    is_first = view.launch_asked_at is None or (view.known.is_recorded and view.launch_tries == 1)
    if is_first:
        # A launch is recorded before it is called: there is nothing of the name to be found yet.
        return _launch(view, now)
    return _found(view) or _launch(view, now)


def _found(view: ClusterView) -> Action | None:
    """Look for what was asked for under the name: a launch under way, then the cluster itself.

    In this order: a launch that ends in between has left the cluster.
    """
    known = view.known
    if known.launches is None:
        return AskLaunches()
    if known.launches:
        return Adopt(known.launches[0])
    if known.looked is None:
        return Look()
    sighting = known.looked.sighting
    if sighting is None:
        return None
    if view.node_heard_at is not None:
        # Its node has the attempt: the job is there, and asking for it takes seconds to minutes.
        return BecomeUp(None, sighting.cluster)
    if known.jobs is None and not known.is_not_up:
        return AskJobs()
    own = _own_jobs(view)
    return BecomeUp(own[0].id, sighting.cluster) if own else None


def _launch(view: ClusterView, now: datetime) -> Action:
    if view.known.is_recorded:
        return Launch()
    if _may_be_under_way(view, now):
        return Wait(SOON, "a launch may still be on its way")
    if view.launch_tries >= MAX_LAUNCHES:
        return End(
            Cause.LAUNCH_FAILED,
            f"the cluster was asked for {view.launch_tries} times, and each launch was lost",
        )
    if view.is_shut_out and not _is_seen(view):
        return Wait(LATER, "no API process is there for its nodes to ask: it is not rented yet")
    return Record()


def _launching(view: ClusterView, now: datetime) -> Action:
    over = _over(view, now)
    if over is not None:
        return over
    if view.request_id is None:
        return Forget()
    report = view.known.report
    if report is None:
        return AskRequest(view.request_id)
    if report.state is RequestState.DONE:
        return BecomeUp(report.job_id, report.cluster)
    if report.state is RequestState.FAILED:
        return _failed(report.error)
    if report.state is RequestState.FORGOTTEN:
        return Forget()
    return Wait(SOON, "the launch is under way")


def _up(view: ClusterView, now: datetime) -> Action:
    over = _over(view, now)
    if over is not None:
        return over
    duplicates = tuple(job.id for job in _live(_own_jobs(view))[1:])
    if duplicates and not view.known.are_duplicates_cancelled:
        return CancelDuplicates(duplicates)
    if not _is_silent(view, now):
        may_be_two = view.launch_tries > 1 and view.jobs_asked_at is None
        return AskJobs() if may_be_two else Wait(LATER, None)
    return _silent(view, now)


def _silent(view: ClusterView, now: datetime) -> Action:
    """A silent node is no proof of anything: its cloud, then its job are asked."""
    seen = _by_sweeps(view, now) if _is_seen_since(view, now) else None
    if seen is not None:
        return seen
    if view.known.is_not_up:
        return Wait(LATER, "the cluster is not up to tell of its job: it may come back")
    if view.known.jobs is not None:
        return _by_its_job(view, now)
    if view.jobs_asked_at is not None and now - view.jobs_asked_at < JOBS_EVERY:
        return Wait(LATER, view.waits_for or "the node is silent: its job is asked for again soon")
    return AskJobs()


def _by_sweeps(view: ClusterView, now: datetime) -> Action | None:
    """What follows from the newest sweeps; None where they found it well."""
    if view.num_unseen >= UNSEEN_ENOUGH:
        return End(
            Cause.CLUSTER_LOST,
            f"the cloud did not have the cluster {view.num_unseen} times in a row, and its first"
            " node is silent",
        )
    if view.num_unseen:
        return Wait(LATER, "the cloud did not have the cluster: it is asked once more")
    if view.unsound_since is not None:
        if now - view.unsound_since >= UNSOUND_ENOUGH:
            return End(Cause.CLUSTER_LOST, "the cluster is stopped or broken, its node silent")
        return Wait(LATER, "the cluster is not up: it may come back")
    return None


def _is_seen_since(view: ClusterView, now: datetime) -> bool:
    """Whether a sweep looked lately, and after its node was heard last."""
    seen, heard = view.seen_at, view.node_heard_at
    if seen is None or now - seen >= SEEN_LATELY:
        return False
    return heard is None or seen > heard


def _by_its_job(view: ClusterView, now: datetime) -> Action:
    own = _own_jobs(view)
    if live := _live(own):
        return Wait(LATER, _SILENT_WHILE[live[0].state])
    if own and own[-1].state is JobState.SETUP_FAILED:
        return End(Cause.SETUP_FAILED, "a node could not be set up: its log says why")
    if not own and view.num_jobless < JOBLESS_ENOUGH:
        return Wait(LATER, "its job is not there: it is asked for once more")
    found = f"its job is {own[-1].state.value}" if own else "its job is not there"
    if view.node_heard_at is None and view.shut_out_at and now - view.shut_out_at < SHUT_OUT:
        return End(Cause.JOB_ENDED, f"{found}: no API process was there to give its node the plan")
    return End(Cause.JOB_ENDED, f"{found}, and the node reported no end")


def _ending(view: ClusterView, now: datetime) -> Action:
    """Gone means that after it was told to end no launch is under way, then that it is not there.

    In this order: a launch that ends in between has left a cluster to be seen. It is told to end
    before anything is asked: what answers slowly must not keep machines.
    """
    known = view.known
    if view.launch_asked_at is None and view.up_at is None:
        return BeGone()
    told = view.down_asked_at
    if not known.is_down_asked and (told is None or now - told >= DOWN_AGAIN):
        return AskDown()
    # When it is told again it is looked for at once: late ticks may each be one that tells it.
    is_first = view.ending_at is None or now - view.ending_at < DOWN_AGAIN
    if known.is_down_asked and known.looked is None and view.up_at is not None and is_first:
        return Wait(LATER, view.waits_for or "it was told to end just now")
    if _may_have_been_forgotten(view):
        return AskRequest(view.request_id) if known.report is None and view.request_id else Forget()
    return _is_left(view, now) or BeGone()


def _is_left(view: ClusterView, now: datetime) -> Action | None:
    """Look for what is left of it; None where nothing is."""
    known = view.known
    if known.launches is None:
        return AskLaunches()
    if known.launches:
        return Wait(SOON, "a launch of it is still under way")
    if known.looked is None:
        return Look()
    if known.looked.sighting is not None:
        if known.down_fault is None and view.down_request_id is not None:
            return AskDownFault(view.down_request_id)
        fault = known.down_fault.message if known.down_fault else None
        return Wait(LATER, f"it is still there: {fault}" if fault else "it is still there")
    if _may_be_under_way(view, now):
        return Wait(SOON, "a launch may still be on its way")
    return None


def _gone(view: ClusterView, now: datetime) -> Action:
    del view, now
    return Wait(IDLE, None)


def is_stuck(view: ClusterView, now: datetime) -> bool:
    """Whether its run is to be told that a cluster does not go."""
    is_long = view.ending_at is not None and now - view.ending_at >= STUCK
    return view.state is ClusterState.ENDING and is_long and not view.is_end_warned


_BY_STATE: dict[ClusterState, Callable[[ClusterView, datetime], Action]] = {
    ClusterState.WANTED: _wanted,
    ClusterState.LAUNCHING: _launching,
    ClusterState.UP: _up,
    ClusterState.ENDING: _ending,
    ClusterState.GONE: _gone,
}


def _over(view: ClusterView, now: datetime) -> Action | None:
    """End it where nobody wants it any more, or its time is up."""
    if not view.is_wanted:
        return End(None, "it is not wanted any more")
    if view.wall_limit_at is not None and now >= view.wall_limit_at:
        return End(Cause.WALL_CLOCK_LIMIT, "the cluster reached backend.skypilot.max_hours")
    return None


def _failed(error: CloudError | None) -> Action:
    if error is None:
        return End(Cause.LAUNCH_FAILED, "the launch failed, and nobody said why")
    return End(CAUSES[error.kind], error.message)


def _is_seen(view: ClusterView) -> bool:
    """Whether this tick has seen the cluster: its machines are paid for, whoever is away."""
    return view.known.looked is not None and view.known.looked.sighting is not None


def _may_be_under_way(view: ClusterView, now: datetime) -> bool:
    """Whether a launch that nobody has answered may still come to something."""
    asked = view.launch_asked_at
    return asked is not None and view.request_id is None and now - asked < LAUNCH_GRACE


def _may_have_been_forgotten(view: ClusterView) -> bool:
    """Whether a process of an API server that is gone may still bring up what it was asked for."""
    report = view.known.report
    if view.up_at is not None or view.request_id is None:
        return False
    return report is None or report.state is RequestState.FORGOTTEN


def _is_silent(view: ClusterView, now: datetime) -> bool:
    heard = max((each for each in (view.node_heard_at, view.up_at) if each), default=None)
    return heard is None or now - heard >= NODE_SILENT


def _own_jobs(view: ClusterView) -> tuple[JobSighting, ...]:
    """The jobs that are the attempt's, live ones first, then oldest first."""
    own = [job for job in view.known.jobs or () if job.name == view.job_name]
    return tuple(sorted(own, key=lambda job: (not job.state.is_live, job.id)))


def _live(jobs: tuple[JobSighting, ...]) -> tuple[JobSighting, ...]:
    return tuple(job for job in jobs if job.state.is_live)
