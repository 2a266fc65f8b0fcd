"""`/v1/runs/{id}/guards`: the state of a run's guards."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep, Writer
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.runs.errors import GuardTripNotFound
from api.runs.journal import utc_now
from api.runs.store import lock_run
from api.scheduling.limits.guards.report import build_guards, episode_of
from api.scheduling.limits.guards.trips import acknowledge
from hillclimb.protocol.payloads.events import GuardsPayload, GuardTripPayload

router = APIRouter(prefix="/v1/runs/{run_id}/guards", tags=["events"], responses=PROBLEMS)


@router.get("", operation_id="get_guards", summary="Read the guards of a run")
def get_guards(services: ServicesDep, caller: Reader, run_id: RunId) -> GuardsPayload:
    """Return every guard: its policy, its measurement now, and what it would take to trip.

    Also the newest 100 episodes in which one had tripped, with their evidence.
    """
    with open_run(services, caller, run_id) as (session, run):
        return build_guards(session, run, now=utc_now())


@router.post(
    "/{guard}/acknowledge",
    operation_id="acknowledge_guard",
    summary="Acknowledge a guard that tripped",
    responses={**documented(KINDS[GuardTripNotFound])},
)
def acknowledge_guard(
    services: ServicesDep,
    caller: Writer,
    run_id: RunId,
    guard: Annotated[str, Path(max_length=60, examples=["no_signal"])],
) -> GuardTripPayload:
    """Note that the caller has seen the guard's newest episode; the first to say so stays."""
    with services.database.transaction() as session:
        run = lock_run(session, run_id, project_id=caller.project_id)
        now = utc_now()
        row = acknowledge(session, run, guard, number=None, actor=caller.actor, now=now)
        return episode_of(row)
