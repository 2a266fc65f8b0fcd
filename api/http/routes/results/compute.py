"""`/v1/runs/{id}/compute`: the ledger of a run's compute."""

from __future__ import annotations

from fastapi import APIRouter

from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.ledger import build_compute
from hillclimb.protocol.payloads.results.compute import ComputePayload

router = APIRouter(prefix="/v1/runs/{run_id}/compute", tags=["results"], responses=PROBLEMS)


@router.get("", operation_id="get_compute", summary="Read the ledger of compute")
def get_compute(services: ServicesDep, caller: Reader, run_id: RunId) -> ComputePayload:
    """Return what every step and evaluation took: rollouts, tokens and FLOPs.

    Rejected rollouts, repeated steps and interrupted ones are included, because they were spent.
    """
    with open_run(services, caller, run_id) as (session, run):
        return ComputePayload.of(build_compute(session, run.id))
