"""Episodes of guards: `guard.tripped` opens one and acts by policy, `guard.cleared` closes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.runs.errors import GuardTripNotFound
from api.runs.journal import SERVICE, Draft, append
from api.runs.status import DesiredState
from api.scheduling import control
from api.tables import GuardTrip, Run
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.payloads.events import (
    GuardAction,
    GuardCleared,
    GuardEvidence,
    GuardTripped,
)

TRIPPED, CLEARED = "guard.tripped", "guard.cleared"
MAX_TRIPS = 100
"""Episodes in the answer of the route."""


def open_trips(session: Session, run_id: str) -> Mapping[str, GuardTrip]:
    """Return the episodes that last, by guard."""
    query = select(GuardTrip).where(GuardTrip.run_id == run_id, GuardTrip.cleared_at.is_(None))
    return {each.guard: each for each in session.scalars(query)}


def newest_trips(session: Session, run_id: str) -> Sequence[GuardTrip]:
    """Return the newest episodes of a run, newest first."""
    query = select(GuardTrip).where(GuardTrip.run_id == run_id)
    query = query.order_by(GuardTrip.tripped_at.desc(), GuardTrip.guard, GuardTrip.number.desc())
    return session.scalars(query.limit(MAX_TRIPS)).all()


def count_trips(session: Session, run_id: str) -> Mapping[str, int]:
    """Return the number of episodes of each guard that has any."""
    query = select(GuardTrip.guard, func.count().label("number")).where(GuardTrip.run_id == run_id)
    rows = session.execute(query.group_by(GuardTrip.guard))
    return {row.guard: row.number for row in rows}


def trip(
    session: Session,
    run: Run,
    guard: str,
    policy: GuardAction | None,
    evidence: GuardEvidence,
    *,
    now: datetime,
) -> bool:
    """Open an episode of a guard that is on, and act; False if one is open already.

    The run is locked. If another guard has paused or stopped it already, this one only reports.
    """
    if policy is None or guard in open_trips(session, run.id):
        return False
    is_free = run.desired_state == DesiredState.RUNNING.value
    action: GuardAction = policy if is_free else "alert"
    number = count_trips(session, run.id).get(guard, 0) + 1
    data = GuardTripped(
        guard=guard,
        number=number,
        policy=policy,
        action=action,
        step=run.progress_step,
        message=f"{guard}: {evidence.message}",
        evidence=evidence,
    )
    session.add(
        GuardTrip(
            run_id=run.id,
            attempt=run.attempt,
            tripped_at=now,
            evidence=evidence.model_dump(mode="json"),
            **data.model_dump(include={"guard", "number", "policy", "action", "step"}),
        )
    )
    session.flush()
    _report(session, run, TRIPPED, data, now=now)
    _act(session, run, action, data.message, now=now)
    return True


def clear(session: Session, run: Run, episode: GuardTrip, message: str, *, now: datetime) -> None:
    """Close an episode: the guard is armed again."""
    episode.cleared_at, episode.cleared_step = now, run.progress_step
    data = GuardCleared(
        guard=episode.guard,
        number=episode.number,
        step=run.progress_step,
        cause="rewound" if run.progress_step < episode.step else "recovered",
        message=f"{episode.guard}: {message}",
    )
    _report(session, run, CLEARED, data, now=now)


def acknowledge(
    session: Session, run: Run, guard: str, *, number: int | None, actor: str, now: datetime
) -> GuardTrip:
    """Note who has seen an episode; null is the guard's newest. The first to say so stays.

    The guard goes on as before: only its message has been read. The run is locked. Raises
    GuardTripNotFound.
    """
    query = select(GuardTrip).where(GuardTrip.run_id == run.id, GuardTrip.guard == guard)
    if number is not None:
        query = query.where(GuardTrip.number == number)
    episode = session.scalar(query.order_by(GuardTrip.number.desc()).limit(1))
    if episode is None:
        which = "has not tripped" if number is None else f"has no episode {number}"
        raise GuardTripNotFound(
            f"Guard {guard} of run {run.id} {which}: GET /v1/runs/{run.id}/guards lists those that"
            " have."
        )
    if episode.acknowledged_at is None:
        episode.acknowledged_at, episode.acknowledged_by = now, actor
        # Streams of an ended run are closed, so it gets no more events.
        if run.ended_at is None:
            data = {"guard": guard, "number": episode.number, "step": episode.step}
            draft = Draft(type="guard.acknowledged", at=now, actor=actor, data=data)
            append(session, run, [draft])
    return episode


def _report(
    session: Session, run: Run, kind: str, data: GuardTripped | GuardCleared, *, now: datetime
) -> None:
    draft = Draft(type=kind, at=now, attempt=run.attempt or None, data=data.model_dump(mode="json"))
    append(session, run, [draft])


def _act(session: Session, run: Run, action: GuardAction, message: str, *, now: datetime) -> None:
    sentence = f"A guard tripped: {message}."
    if action == "pause":
        reason = (ReasonCode.PAUSED_BY_GUARD, sentence)
        control.pause_for_reason(session, run, reason, actor=SERVICE, now=now)
    elif action == "stop":
        reason = (ReasonCode.STOPPED_BY_GUARD, sentence)
        control.stop_for_reason(session, run, reason, actor=SERVICE, now=now)
