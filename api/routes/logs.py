"""`/v1/runs/{id}/logs`: the trainer's output, from any position."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.artifacts.logs import read_log
from api.routes.context import Reader, ServicesDep
from api.routes.reads import PROBLEMS, RunId, open_run

router = APIRouter(prefix="/v1/runs/{run_id}/logs", tags=["results"], responses=PROBLEMS)

MAX_BYTES = 4 << 20


@router.get("", operation_id="read_logs", summary="Read the trainer's log")
def read_logs(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    attempt: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    after: Annotated[int, Query(ge=0, le=2**53, description="`next_offset` of the last page.")] = 0,
    limit: Annotated[int, Query(ge=16, le=MAX_BYTES, description="Bytes.")] = 1 << 16,
) -> dict[str, Any]:
    """Return text behind `after`, of the newest attempt unless one is named.

    To follow, ask again with `next_offset`: at once while `has_more`, later otherwise, no more when
    `ended` is true.
    """
    with open_run(services, caller, run_id) as (_, run):
        number = attempt or run.attempt
        is_over = run.ended_at is not None or number < run.attempt
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
