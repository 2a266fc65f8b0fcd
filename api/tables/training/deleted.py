"""Deleted runs: the record of each, and how a run disappears before its rows do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, ORMExecuteState, mapped_column, with_loader_criteria

from api.tables.base import Base, Created
from api.tables.training.runs import Run

INCLUDES_DELETING = "includes_deleting"
"""Execution option of a statement that reads runs under deletion too."""
_IS_THERE = with_loader_criteria(Run, lambda run: run.deleting_at.is_(None), include_aliases=True)
"""A function of the entity: an expression would name the table in statements that alias it."""


class DeletedRun(Created, Base):
    """The record of a run whose deletion was requested at `created_at`.

    Its spending and its submission count further; runners learn from it which folders to delete.
    """

    __tablename__ = "deleted_runs"
    __table_args__ = (
        Index("ix_deleted_runs_page", "project_id", "created_at", "id"),
        Index("ix_deleted_runs_open", "completed_at", postgresql_where=text("checked_at IS NULL")),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    submitted_at: Mapped[datetime | None]
    """Null for an imported run, which was not submitted."""
    deleted_by: Mapped[str]
    reason: Mapped[str]
    """`request`, `retention` or `project`."""
    billed: Mapped[list[dict[str, Any]]]
    """`billed_from`, `terminated_at` and `hourly_usd` of each cluster that was billed."""
    num_rows: Mapped[int] = mapped_column(BigInteger, default=0)
    num_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Size of the deleted blobs."""
    completed_at: Mapped[datetime | None]
    """When nothing of it was left; null while rows or blobs are being deleted."""
    checked_at: Mapped[datetime | None]
    """When its blobs were deleted again: those that a trainer uploaded late."""


def hide_deleting(state: ORMExecuteState) -> None:
    """Leave runs under deletion out of a query, as a listener of `do_orm_execute`."""
    if (
        state.is_select
        and not state.is_column_load
        and not state.execution_options.get(INCLUDES_DELETING, False)
    ):
        state.statement = state.statement.options(_IS_THERE)
