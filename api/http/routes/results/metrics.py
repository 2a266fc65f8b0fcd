"""`/v1/runs/{id}/metrics`: series by name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, as_list, open_run
from api.results.metrics import MetricFilters, read_metrics
from hillclimb.protocol.payloads.results.metrics import MetricList

router = APIRouter(prefix="/v1/runs/{run_id}/metrics", tags=["results"], responses=PROBLEMS)

Step = Annotated[int | None, Query(ge=0, le=2**31 - 1)]


@router.get("", operation_id="list_metrics", summary="Read metric series")
def list_metrics(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    names: Annotated[str, Query(max_length=1000, examples=["reward/*,eval/*/pass_at_1"])] = "*",
    from_step: Step = None,
    to_step: Step = None,
) -> MetricList:
    """Return one series per name and decoding; for a repeated step the newest attempt counts."""
    filters = MetricFilters(names=names.split(","), from_step=from_step, to_step=to_step)
    with open_run(services, caller, run_id) as (session, run):
        return MetricList.of(as_list(read_metrics(session, run.id, filters)))
