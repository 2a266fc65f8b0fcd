"""`/v1/runs/{id}/logs`: the trainer's log, from any position."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.log_search import Level, LogFilter, search_log
from api.results.artifacts.logs import read_log
from hillclimb.protocol.payloads.results.logs import LogPayload

MAX_BYTES = 4 << 20
FIND = {"max_length": 200, "min_length": 1}


async def log_filter(
    level: Annotated[Level | None, Query(description="This level and higher ones.")] = None,
    component: Annotated[
        str | None, Query(description="Such as `node` or `trainer.rollouts`.", **FIND)
    ] = None,
    environment: Annotated[
        str | None, Query(description="Environment that a line names.", **FIND)
    ] = None,
    text: Annotated[str | None, Query(description="Anywhere in a line.", **FIND)] = None,
) -> LogFilter:
    """Return the filter of the query string."""
    return LogFilter(level=level, component=component, environment=environment, text=text)


async def page_bounds(
    after: Annotated[int, Query(ge=0, le=2**53, description="`next_offset` of the last page.")] = 0,
    limit: Annotated[int, Query(ge=16, le=MAX_BYTES, description="Bytes.")] = 1 << 16,
) -> tuple[int, int]:
    """Return the start and the size limit of a page."""
    return after, limit


router = APIRouter(prefix="/v1/runs/{run_id}/logs", tags=["results"], responses=PROBLEMS)


@router.get("", operation_id="read_logs", summary="Read the trainer's log")
def read_logs(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    filter_: Annotated[LogFilter, Depends(log_filter)],
    bounds: Annotated[tuple[int, int], Depends(page_bounds)],
    attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> LogPayload:
    """Return the log after position `after`, of the newest attempt unless another is named.

    To follow, repeat with `next_offset`: at once while `has_more`, later otherwise, and stop when
    `ended` is true. With a filter, a line without a level belongs to the record before it, and a
    page searches about 8 MiB of the log: an empty page may have `has_more`.
    """
    after, limit = bounds
    with open_run(services, caller, run_id) as (_, run):
        number = attempt or run.attempt
        is_ended = run.ended_at is not None or number < run.attempt
    if filter_.is_active:
        page = search_log(services.store, run_id, number, filter_, after=after, limit=limit)
    else:
        page = read_log(services.store, run_id, number, after=after, limit=limit)
    return LogPayload(
        run_id=run_id,
        attempt=number,
        text=page.text,
        next_offset=page.next_offset,
        has_more=page.has_more,
        ended=is_ended and not page.has_more,
    )
