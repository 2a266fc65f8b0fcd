"""`/v1/runs/{id}/probe`: the results of a probe."""

from __future__ import annotations

from fastapi import APIRouter

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.errors import NoSuchProbe
from api.results.preflight.probe import read_probe
from api.runs.errors import RunNotFound
from hillclimb.protocol.payloads.results.probes import ProbePayload

router = APIRouter(prefix="/v1/runs/{run_id}/probe", tags=["results"], responses=PROBLEMS)


@router.get(
    "",
    operation_id="get_probe",
    summary="Get the results of a probe",
    responses={**documented(KINDS[RunNotFound], KINDS[NoSuchProbe])},
)
def get_probe(services: ServicesDep, caller: Reader, run_id: RunId) -> ProbePayload:
    """Return per environment its health, pass rate, shares of groups with signal and verdict.

    A run that was stopped early has partial results, with `complete` false.
    """
    with open_run(services, caller, run_id) as (session, run):
        return ProbePayload.model_validate(read_probe(session, run))
