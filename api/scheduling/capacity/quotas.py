"""Quotas on the runs of a project: how many may wait, run, and be submitted per hour."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, ScalarSelect, func, select
from sqlalchemy.orm import Session

from api.runs.queue_class import is_waiting
from api.runs.status import TERMINAL, WAITING, RunStatus
from api.tables import DatasetVersion, DeletedRun, Run
from api.tables.access.quotas import quotas_of

HOUR = timedelta(hours=1)
BUSY = tuple(s.value for s in RunStatus if s not in WAITING | TERMINAL | {RunStatus.PAUSED})
"""Statuses of runs that have a runner or a cluster."""


def full_reason(session: Session, project_id: str) -> str | None:
    """Return why no further run of the project may start; null if one may."""
    if num_startable(session, project_id) > 0:
        return None
    limit = quotas_of(session, project_id).limits["running_runs"]
    return f"The project's quota of {limit} running runs is used up."


def num_startable(session: Session, project_id: str) -> int:
    """Return how many further runs the project's quota lets start."""
    limit = quotas_of(session, project_id).limits["running_runs"]
    return max(0, limit - _count(session, project_id, Run.status.in_(BUSY)))


def use_of(session: Session, project_id: str, *, now: datetime) -> Mapping[str, int]:
    """Return how much of each quota the project uses."""
    sizes = select(func.coalesce(func.sum(DatasetVersion.size_bytes), 0))
    stored = session.scalar(sizes.where(DatasetVersion.project_id == project_id))
    return {
        "queued_runs": _count(session, project_id, is_waiting()),
        "running_runs": _count(session, project_id, Run.status.in_(BUSY)),
        "submissions_per_hour": _count(session, project_id, is_recent(now))
        + (session.scalar(select(_number_deleted(project_id, now=now))) or 0),
        "dataset_bytes": int(stored or 0),
    }


def _count(session: Session, project_id: str, condition: ColumnElement[bool]) -> int:
    """Return how many runs of the project meet the condition."""
    return session.scalar(select(_number(project_id, condition))) or 0


def _number(project_id: str, condition: ColumnElement[bool]) -> ScalarSelect[int]:
    """Return the number of the project's runs that meet the condition."""
    which = select(Run.id).where(Run.project_id == project_id, condition)
    return select(func.count()).select_from(which.subquery()).scalar_subquery()


def _number_deleted(project_id: str, *, now: datetime) -> ScalarSelect[int]:
    """Return the number of runs that were submitted and deleted within the last hour."""
    since = now - HOUR
    # They were deleted since then too, by which the index finds them.
    deleted = (DeletedRun.created_at > since) & (DeletedRun.submitted_at > since)
    query = select(func.count()).where(DeletedRun.project_id == project_id, deleted)
    return query.scalar_subquery()


def is_recent(now: datetime) -> ColumnElement[bool]:
    """Submitted within the last hour; imports are no submissions."""
    return (Run.created_at > now - HOUR) & Run.origin.is_(None)
