"""Decides whether a run may provision another cluster: limit, back-off, recovery budget.

The limit is the project's number of clusters. Lack of capacity passes, so it is retried with an
exponential back-off; lost clusters are limited by `max_recoveries` of the spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs.api_liveness import is_api_alive
from api.runs.deadlines import API_UNREACHABLE_GRACE, CAPACITY_TIMEOUT, FIRST_BACKOFF, MAX_BACKOFF
from api.tables import Attempt, Cluster, Run
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.backend.skypilot import SkyPilotSpec

LOST = (
    ReasonCode.CLUSTER_LOST.value,
    ReasonCode.LAUNCH_FAILED.value,
    ReasonCode.PROVISION_TIMEOUT.value,
    ReasonCode.NODE_UNFIT.value,
)
"""Ends of attempts after which another cluster is a recovery; an unrequested stop is one too."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """No cluster now, and why; a later check may allow one."""

    why: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No cluster any more, and why."""

    reason: ReasonCode
    message: str


def can_provision(session: Session, run: Run, *, now: datetime) -> RetryLater | GiveUp | None:
    """Return why the waiting run gets no cluster now; null when it may provision one."""
    if clusters.live_of_run(session, run.id):
        return RetryLater("The run's previous cluster is still being terminated.")
    spec = SkyPilotSpec.model_validate(run.spec["backend"]["skypilot"])
    num_lost = _num_lost(session, run)
    if num_lost > spec.max_recoveries:
        return GiveUp(
            ReasonCode.CLUSTER_LOST,
            f"{num_lost} clusters were lost or failed to start, and"
            f" backend.skypilot.max_recoveries is {spec.max_recoveries}.",
        )
    if spec.api_reachable and not is_api_alive(session):
        return RetryLater("No API process is running that could send its nodes their plan.")
    limit = clusters.max_clusters(session, run.project_id)
    if clusters.num_live(session, run.project_id) >= limit:
        return RetryLater(f"The project has reached its limit of {limit} clusters.")
    return _capacity(session, run, now=now)


def backoff_after(num_failures: int) -> timedelta:
    """Return the back-off after so many attempts in a row found no capacity."""
    doubled: int = 2 ** min(num_failures - 1, 10)
    return min(MAX_BACKOFF, FIRST_BACKOFF * doubled)


def backoff_until(session: Session, run: Run, *, now: datetime) -> datetime | None:
    """Return the end of the back-off after capacity failures; null without such failures.

    Until then the waiting run is not due and blocks no other.
    """
    failures = _capacity_failures(session, run, now=now)
    return failures[0][0] + backoff_after(len(failures)) if failures else None


def _capacity_failures(
    session: Session, run: Run, *, now: datetime
) -> list[tuple[datetime, datetime]]:
    """Return (ended_at, scheduled_at) of the latest attempts without capacity, newest first."""
    query = select(Attempt.end_code, Attempt.ended_at, Attempt.scheduled_at)
    query = query.where(Attempt.run_id == run.id, Attempt.number > run.resumed_after)
    failures = []
    for end_code, ended_at, scheduled_at in session.execute(query.order_by(Attempt.number.desc())):
        if end_code != ReasonCode.NO_CAPACITY.value:
            break
        failures.append((ended_at or now, scheduled_at))
    return failures


def _capacity(session: Session, run: Run, *, now: datetime) -> RetryLater | GiveUp | None:
    failures = _capacity_failures(session, run, now=now)
    if not failures:
        return None
    if now - failures[-1][1] > CAPACITY_TIMEOUT:
        hours = CAPACITY_TIMEOUT.total_seconds() / 3600
        return GiveUp(
            ReasonCode.NO_CAPACITY,
            f"No candidate had capacity in {hours:.0f} hours and {len(failures)} attempts.",
        )
    retry_at = failures[0][0] + backoff_after(len(failures))
    if now < retry_at:
        return RetryLater(f"No candidate had capacity; next attempt at {retry_at:%H:%M:%S} UTC.")
    return None


def _num_lost(session: Session, run: Run) -> int:
    query = select(func.count()).select_from(Cluster)
    query = query.join(Attempt, Attempt.id == Cluster.attempt_id)
    stopped = Attempt.end_code == ReasonCode.RUNNER_STOPPED.value
    unrequested = stopped & Attempt.stop_requested_at.is_(None)
    lost = (Attempt.end_code.in_(LOST) & Attempt.trainer_code.is_(None)) | unrequested
    query = query.where(Cluster.run_id == run.id, Attempt.number > run.resumed_after, lost)
    return session.scalar(query.where(_had_api())) or 0


def _had_api() -> ColumnElement[bool]:
    """A condition that excludes clusters that came up while no API process could send the plan."""
    silent_ends = (ReasonCode.CLUSTER_LOST.value, ReasonCode.PROVISION_TIMEOUT.value)
    return or_(
        Attempt.claimed_at.is_not(None),
        Attempt.end_code.not_in(silent_ends),
        Cluster.api_unreachable_at.is_(None),
        Cluster.api_unreachable_at < Attempt.ended_at - API_UNREACHABLE_GRACE,
    )
