"""`/v1/runs/{id}/metrics`: series by name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.http.problems import INVALID, KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, as_list, open_run
from api.results.errors import TooManyPoints
from api.results.metrics import MetricFilters, read_metrics
from hillclimb.protocol.payloads.results.metrics import MetricList

router = APIRouter(prefix="/v1/runs/{run_id}/metrics", tags=["results"], responses=PROBLEMS)

Step = Annotated[int | None, Query(ge=0, le=2**31 - 1)]


async def metric_filters(
    names: Annotated[str, Query(max_length=1000, examples=["reward/*,eval/*/pass_at_1"])] = "*",
    from_step: Step = None,
    to_step: Step = None,
    max_points: Annotated[int | None, Query(ge=2, le=10_000, examples=[500])] = None,
) -> MetricFilters:
    """Return the filters that a request names."""
    return MetricFilters(
        names=names.split(","), from_step=from_step, to_step=to_step, max_points=max_points
    )


@router.get(
    "",
    operation_id="list_metrics",
    summary="Read metric series",
    responses={**documented(INVALID, KINDS[TooManyPoints])},
)
def list_metrics(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    filters: Annotated[MetricFilters, Depends(metric_filters)],
) -> MetricList:
    """Return one series per name and decoding; for a repeated step the newest attempt counts.

    With `max_points`, a series of more steps than that has its first point, and the last one of
    each of so many equal parts of its steps. More than 500,000 points in all are refused.
    """
    with open_run(services, caller, run_id) as (session, run):
        series = read_metrics(session, run.id, filters)
        return MetricList.of(as_list(series, sampled_at=run.metrics_sampled_at))
