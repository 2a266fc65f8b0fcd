"""Whether a run's next cluster may be asked for now: how many stand, how often it came to nothing.

Machines that nobody has today may be there in an hour, so lack of capacity is waited out with
growing pauses; clusters that come and go are not had for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs.presence import is_api_there
from api.tables import Attempt, Cluster, Run
from trainer.contract.clusters.spec import SkyPilotSpec
from trainer.contract.reasons import ReasonCode

FIRST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(minutes=15)
GIVE_UP_AFTER = timedelta(hours=12)
"""Of nothing but lack of capacity."""
LOST = (
    ReasonCode.CLUSTER_LOST.value,
    ReasonCode.LAUNCH_FAILED.value,
    ReasonCode.PROVISION_TIMEOUT.value,
    ReasonCode.NODE_UNFIT.value,
)
"""Ends of attempts after which another cluster is a recovery; a job stopped unasked is one too."""
SHUT_OUT = timedelta(minutes=5)
"""A cluster whose node found no API in the last minutes of its attempt was not lost. Longer than it
takes to hear that the job is over: it is asked for once a minute."""


@dataclass(frozen=True, slots=True)
class Later:
    """Not now, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Never:
    """Not any more, and why."""

    reason: ReasonCode
    message: str


def may_ask(session: Session, run: Run, *, now: datetime) -> Later | Never | None:
    """Return why the waiting run gets no cluster now; null when it may ask for one."""
    if clusters.live_of_run(session, run.id):
        return Later("The run's earlier cluster is still being ended.")
    spec = SkyPilotSpec.model_validate(run.spec["backend"]["skypilot"])
    num_lost = _num_lost(session, run)
    if num_lost > spec.max_recoveries:
        return Never(
            ReasonCode.CLUSTER_LOST,
            f"{num_lost} clusters were lost or did not come up, and"
            f" backend.skypilot.max_recoveries is {spec.max_recoveries}.",
        )
    if spec.api_reachable and not is_api_there(session):
        return Later("No API process is there for its nodes to ask for their plan.")
    at_most = clusters.max_clusters(session, run.project_id)
    if clusters.num_live(session, run.project_id) >= at_most:
        return Later(f"The project has {at_most} clusters, as many as it may have.")
    return _capacity(session, run, now=now)


def pause_after(num_times: int) -> timedelta:
    """Return how long to wait after so many tries in a row found no capacity."""
    doubled: int = 2 ** min(num_times - 1, 10)
    return min(LONGEST_PAUSE, FIRST_PAUSE * doubled)


def rests_until(session: Session, run: Run, *, now: datetime) -> datetime | None:
    """Return the end of the pause after tries without capacity; null without such tries.

    Until then the waiting run is not due, and in nobody's way.
    """
    tries = _in_vain(session, run, now=now)
    return tries[0][0] + pause_after(len(tries)) if tries else None


def _in_vain(session: Session, run: Run, *, now: datetime) -> list[tuple[datetime, datetime]]:
    """Return (end, offer) of the tries in a row that found no capacity, newest first."""
    query = select(Attempt.end_code, Attempt.ended_at, Attempt.offered_at)
    query = query.where(Attempt.run_id == run.id, Attempt.number > run.resumed_after)
    tries = []
    for end_code, ended_at, offered_at in session.execute(query.order_by(Attempt.number.desc())):
        if end_code != ReasonCode.NO_CAPACITY.value:
            break
        tries.append((ended_at or now, offered_at))
    return tries


def _capacity(session: Session, run: Run, *, now: datetime) -> Later | Never | None:
    tries = _in_vain(session, run, now=now)
    if not tries:
        return None
    if now - tries[-1][1] > GIVE_UP_AFTER:
        hours = GIVE_UP_AFTER.total_seconds() / 3600
        return Never(
            ReasonCode.NO_CAPACITY,
            f"No candidate had the machines in {hours:.0f} hours and {len(tries)} tries.",
        )
    again_at = tries[0][0] + pause_after(len(tries))
    if now < again_at:
        return Later(f"No candidate had the machines; asked again at {again_at:%H:%M:%S} UTC.")
    return None


def _num_lost(session: Session, run: Run) -> int:
    query = select(func.count()).select_from(Cluster)
    query = query.join(Attempt, Attempt.id == Cluster.attempt_id)
    stopped = Attempt.end_code == ReasonCode.RUNNER_STOPPED.value
    unasked = stopped & Attempt.stop_requested_at.is_(None)
    lost = (Attempt.end_code.in_(LOST) & Attempt.trainer_code.is_(None)) | unasked
    query = query.where(Cluster.run_id == run.id, Attempt.number > run.resumed_after, lost)
    return session.scalar(query.where(_had_its_chance())) or 0


def _had_its_chance() -> ColumnElement[bool]:
    """Not a cluster that came up while no API process was there to give its node the plan."""
    ends_unheard = (ReasonCode.CLUSTER_LOST.value, ReasonCode.PROVISION_TIMEOUT.value)
    return or_(
        Attempt.claimed_at.is_not(None),
        Attempt.end_code.not_in(ends_unheard),
        Cluster.shut_out_at.is_(None),
        Cluster.shut_out_at < Attempt.ended_at - SHUT_OUT,
    )
