"""The state of every guard of a run: off, waiting, armed or tripped, with its measurement now."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from api.runs.status import TERMINAL, RunStatus
from api.scheduling.limits.guards import trips
from api.scheduling.limits.guards.readings import Readings, guards_of
from api.scheduling.limits.guards.watch import AFTER_EVAL, STUCK, check_of
from api.tables import GuardTrip, Run
from hillclimb.protocol.payloads.events import (
    GuardEvidence,
    GuardPayload,
    GuardsPayload,
    GuardTripPayload,
)
from hillclimb.spec.monitoring.guards import GUARDS, GuardSpec


def build_guards(session: Session, run: Run, *, now: datetime) -> GuardsPayload:
    """Return the guards as of the last completed step, and their episodes."""
    episodes = [episode_of(each) for each in trips.newest_trips(session, run.id)]
    section = guards_of(run)
    if section is None:
        return GuardsPayload(run_id=run.id, guards=[], trips=episodes)
    readings = Readings(session, run, section)
    counts = trips.count_trips(session, run.id)
    lasting = trips.open_trips(session, run.id)
    states = [
        _state(
            readings,
            name,
            number=counts.get(name, 0),
            has_tripped=name in lasting,
            now=now,
        )
        for name in GUARDS
    ]
    return GuardsPayload(run_id=run.id, guards=states, trips=episodes)


def _state(
    readings: Readings, name: str, *, number: int, has_tripped: bool, now: datetime
) -> GuardPayload:
    guard: GuardSpec = getattr(readings.guards, name)
    if guard.policy is None:
        return GuardPayload(
            guard=name,
            policy=None,
            status="off",
            evidence=None,
            needs="",
            next_check="",
            num_trips=number,
        )
    check = check_of(readings, name, now=now)
    is_known = check.evidence.measured is not None
    return GuardPayload(
        guard=name,
        policy=guard.policy,
        status="tripped" if has_tripped else "armed" if is_known else "waiting",
        evidence=check.evidence,
        needs="" if has_tripped else check.needs,
        next_check=_next_check(readings.run, name),
        num_trips=number,
    )


def _next_check(run: Run, name: str) -> str:
    if RunStatus(run.status) in TERMINAL:
        return ""
    if name == STUCK:
        at = run.stuck_at
        return "after the next step" if at is None else f"at {at:%Y-%m-%d %H:%M:%S} UTC"
    return "after the next evaluation" if name in AFTER_EVAL else "after the next step"


def episode_of(row: GuardTrip) -> GuardTripPayload:
    """Return an episode as the response has it."""
    evidence = GuardEvidence.model_validate(row.evidence)
    return GuardTripPayload.of(
        {
            "guard": row.guard,
            "number": row.number,
            "policy": row.policy,
            "action": row.action,
            "step": row.step,
            "message": f"{row.guard}: {evidence.message}",
            "evidence": evidence,
            "attempt": row.attempt,
            "tripped_at": row.tripped_at,
            "cleared_at": row.cleared_at,
            "cleared_step": row.cleared_step,
            "acknowledged_at": row.acknowledged_at,
            "acknowledged_by": row.acknowledged_by,
        }
    )
