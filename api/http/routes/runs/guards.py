"""`/v1/runs/{id}/guards`: the state of a run's guards."""

from __future__ import annotations

from fastapi import APIRouter

from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.runs.journal import utc_now
from api.scheduling.limits.guards.report import build_guards
from hillclimb.protocol.payloads.events import GuardsPayload

router = APIRouter(prefix="/v1/runs/{run_id}/guards", tags=["events"], responses=PROBLEMS)


@router.get("", operation_id="get_guards", summary="Read the guards of a run")
def get_guards(services: ServicesDep, caller: Reader, run_id: RunId) -> GuardsPayload:
    """Return every guard: its policy, its measurement now, and what it would take to trip.

    Also the newest 100 episodes in which one had tripped, with their evidence.
    """
    with open_run(services, caller, run_id) as (session, run):
        return build_guards(session, run, now=utc_now())
