"""`/v1/verdicts/tables`: the verdicts that a printed table of pass rates allows."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.http.problems import INVALID, KINDS, documented
from api.http.requests.context import Reader
from api.results.errors import TableRejected
from api.results.printed import PrintedRates, judge_table
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.results.reports import PrintedTablePayload
from hillclimb.spec.section import WHOLE
from hillclimb.stats.verdicts.printed import CELL_FORM

router = APIRouter(prefix="/v1/verdicts/tables", tags=["results"])

Cell = Annotated[
    str,
    Field(
        max_length=20,
        examples=["46.7%", "14/30"],
        json_schema_extra={"pattern": f"^({CELL_FORM})$"},
    ),
]
NumTasks = Annotated[int, Field(ge=1, le=1000, strict=True), WHOLE]


class PrintedCells(BaseModel):
    """Two pass rates of the same tasks, as printed; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    before: Cell
    """A share with its decimals, or passes of tasks."""
    after: Cell
    num_tasks: NumTasks | None = None
    """Tasks of the row; null: every number up to `max_tasks` that gives both rates."""


class PrintedRowCells(PrintedCells):
    """A row of one environment."""

    env_key: Annotated[str, Field(min_length=1, max_length=200)]


class PrintedTableRequest(BaseModel):
    """A printed table; other keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    rows: Annotated[list[PrintedRowCells], Field(min_length=1, max_length=30)]
    """One per environment."""
    overall: PrintedCells | None = None
    """The rates over all tasks of the rows: they narrow the numbers of tasks."""
    max_tasks: Annotated[int, Field(ge=1, le=300, strict=True), WHOLE] = 30
    """Most tasks of a row without a number."""
    rule: Literal["v1", "v2"] = "v2"
    """Version of the verdicts' rule."""

    @model_validator(mode="after")
    def _environments_differ(self) -> Self:
        if len({row.env_key for row in self.rows}) < len(self.rows):
            raise ValueError("each environment has one row")
        return self


@router.post(
    "",
    operation_id="judge_table",
    summary="Judge a printed table",
    responses={
        **documented(KINDS[NotAuthenticated], KINDS[NotAllowed], KINDS[TableRejected], INVALID)
    },
)
def judge_printed_table(caller: Reader, body: PrintedTableRequest) -> PrintedTablePayload:
    """Return what a table says that prints pass rates alone.

    Per environment and overall: the numbers of tasks and passes that are printed like this, and the
    ranges of p and verdict over all pairings of the tasks before and after. Nothing is stored.
    """
    rows = [_rates(row.env_key, row) for row in body.rows]
    overall = None if body.overall is None else _rates("all", body.overall)
    table = judge_table(rows, overall, max_tasks=body.max_tasks, rule=body.rule)
    return PrintedTablePayload.model_validate(table)


def _rates(name: str, cells: PrintedCells) -> PrintedRates:
    return PrintedRates(
        name=name, before=cells.before, after=cells.after, num_tasks=cells.num_tasks
    )
