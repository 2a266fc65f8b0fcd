"""`/v1/runs/{id}/validation`: the results of a validation, by task."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from api.http.problems import KINDS, documented
from api.http.requests.context import Reader, ServicesDep
from api.http.requests.reads import PROBLEMS, RunId, open_run
from api.results.errors import NoSuchValidation
from api.results.preflight.validation import find_validation, read_rows
from api.runs.errors import RunNotFound
from hillclimb.protocol.payloads.results.validations import (
    TaskValidationPayload,
    ValidationPayload,
)
from hillclimb.protocol.validation import TaskVerdict

router = APIRouter(prefix="/v1/runs/{run_id}/validation", tags=["results"], responses=PROBLEMS)


class RowQuery(BaseModel):
    """Filters and page of the rows; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    verdict: TaskVerdict | None = None
    """Only rows with this verdict."""
    env: Annotated[str | None, Field(max_length=300)] = None
    """Only this environment."""
    after: Annotated[int, Field(ge=0)] = 0
    """Number of rows to skip."""
    limit: Annotated[int, Field(ge=0, le=1000)] = 200


@router.get(
    "",
    operation_id="get_validation",
    summary="Get the results of a validation",
    responses={**documented(KINDS[RunNotFound], KINDS[NoSuchValidation])},
)
def get_validation(
    services: ServicesDep,
    caller: Reader,
    run_id: RunId,
    query: Annotated[RowQuery, Query()],
) -> ValidationPayload:
    """Return the summary and one page of rows; `next_after` leads to the next.

    A run that was stopped early has partial results, with `complete` false.
    """
    with open_run(services, caller, run_id) as (session, run):
        records = find_validation(session, run)
    # Outside the session: reading the store may use the network.
    page, num_rows, end = [], 0, query.after + query.limit
    for row in read_rows(services.store, records.key, verdict=query.verdict, env=query.env):
        if query.after <= num_rows < end:
            page.append(TaskValidationPayload.model_validate(row))
        num_rows += 1
    has_more = end < num_rows
    return ValidationPayload.model_validate(
        {
            **records.facts,
            "rows": page,
            "num_rows": num_rows,
            "has_more": has_more,
            "next_after": end if has_more else None,
        }
    )
