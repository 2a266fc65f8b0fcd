"""`/v1/runs/{id}/logs`: the trainer's output, from any position."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.artifacts.log_search import Level, LogFilter, search_log
from api.results.artifacts.logs import read_log

MAX_BYTES = 4 << 20
FIND = {"max_length": 200, "min_length": 1}


def log_filter(
    level: Annotated[Level | None, Query(description="This level and worse.")] = None,
    component: Annotated[
        str | None, Query(description="Such as `node` or `trainer.rollouts`.", **FIND)
    ] = None,
    environment: Annotated[
        str | None, Query(description="Environment that a line speaks of.", **FIND)
    ] = None,
    text: Annotated[str | None, Query(description="Anywhere in a line.", **FIND)] = None,
) -> LogFilter:
    """Return which lines are wanted."""
    return LogFilter(level=level, component=component, environment=environment, text=text)


def stretch(
    after: Annotated[int, Query(ge=0, le=2**53, description="`next_offset` of the last page.")] = 0,
    limit: Annotated[int, Query(ge=16, le=MAX_BYTES, description="Bytes.")] = 1 << 16,
) -> tuple[int, int]:
    """Return where a page begins and how long it may be."""
    return after, limit


router = APIRouter(prefix="/v1/runs/{run_id}/logs", tags=["results"], responses=PROBLEMS)


@router.get("", operation_id="read_logs", summary="Read the trainer's log")
def read_logs(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    filter_: Annotated[LogFilter, Depends(log_filter)],
    behind: Annotated[tuple[int, int], Depends(stretch)],
    attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> dict[str, Any]:
    """Return text behind `after`, of the newest attempt unless one is named.

    To follow, ask again with `next_offset`: at once while `has_more`, later otherwise, no more when
    `ended` is true. With a filter, lines that are no log lines belong to the one before them, and
    a page covers about 8 MiB of the log: one without text may have more behind it.
    """
    after, limit = behind
    with open_run(services, caller, run_id) as (_, run):
        number = attempt or run.attempt
        is_over = run.ended_at is not None or number < run.attempt
    if filter_.asks:
        page = search_log(services.store, run_id, number, filter_, after=after, limit=limit)
    else:
        page = read_log(services.store, run_id, number, after=after, limit=limit)
    return {
        "object": "log",
        "run_id": run_id,
        "attempt": number,
        "text": page.text,
        "next_offset": page.next_offset,
        "has_more": page.has_more,
        "ended": is_over and not page.has_more,
    }
