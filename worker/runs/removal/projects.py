"""Carries out the deletion of projects: what names runs, the runs, then everything else."""

from __future__ import annotations

import logging
from datetime import datetime

from sqlalchemy import Table, delete, select
from sqlalchemy.orm import Session

from api.admission.deletion.runs import lock_for_deletion, mark_deleted, refuse_live
from api.runs.errors import InvalidTransition, RunNotFound
from api.runs.status import TERMINAL, RunStatus
from api.scheduling import control
from api.tables import (
    Base,
    Campaign,
    CampaignCell,
    CampaignMember,
    DatasetVersion,
    DeletedRun,
    Experiment,
    ExperimentRun,
    Issue,
    Project,
    Run,
)
from api.tables.access import audit
from api.tables.access.identity import DEFAULT_PROJECT
from api.tables.training.deleted import INCLUDES_DELETING
from hillclimb.datasets.format.files import PREFIX
from worker.context import WorkerContext
from worker.deadlines import PROJECT_GRACE
from worker.runs.removal.deadline import Deadline

log = logging.getLogger(__name__)

SERVICE = "service"
STUDIES: tuple[type[Base], ...] = (
    Issue,
    ExperimentRun,
    Experiment,
    CampaignMember,
    CampaignCell,
    Campaign,
)
"""Tables that name runs without being a part of them, in the order of their deletion."""
STAYS = frozenset({"audit_records", "deleted_runs"})
"""Tables of a project that its deletion leaves: the audit, and the records of its runs, which go
once no late blob of theirs can be left."""
RUNS_AT_ONCE = 20


def sweep(context: WorkerContext, *, now: datetime, deadline: Deadline) -> int:
    """Take the next step of each project's deletion; return how many projects are deleted.

    Its runs are marked here and deleted by the sweep of runs.
    """
    with context.database.transaction() as session:
        query = select(Project.id).where(
            Project.deleting_at.is_not(None), Project.deleted_at.is_(None)
        )
        project_ids = session.scalars(query.order_by(Project.deleting_at)).all()
    num_deleted = 0
    for project_id in project_ids:
        with context.database.transaction() as session:
            has_runs = _mark_runs(session, project_id, now=now)
        if not has_runs:
            num_deleted += _delete_rest(context, project_id, now=now, deadline=deadline)
    return num_deleted


def forget_runs(session: Session, run_ids: list[str]) -> None:
    """Delete the records of runs whose projects are deleted."""
    gone = select(Project.id).where(Project.deleted_at.is_not(None))
    statement = delete(DeletedRun).where(
        DeletedRun.id.in_(run_ids), DeletedRun.project_id.in_(gone)
    )
    session.execute(statement, execution_options={"synchronize_session": False})


def _mark_runs(session: Session, project_id: str, *, now: datetime) -> bool:
    """Mark some of the project's runs; True while it has runs.

    A run that somebody submitted just before the request is cancelled first.
    """
    for table in STUDIES:
        _delete_of(session, table.__table__, project_id)
    query = select(Run.id).where(Run.project_id == project_id).order_by(Run.id).limit(RUNS_AT_ONCE)
    for run_id in session.scalars(query).all():
        try:
            run = lock_for_deletion(session, run_id)
            if RunStatus(run.status) not in TERMINAL:
                control.cancel(session, run, actor=SERVICE, now=now)
            refuse_live(session, run)
        except (RunNotFound, InvalidTransition):  # deleted already, or to be deleted later
            continue
        mark_deleted(session, run, by=SERVICE, reason="project", now=now)
    everything = select(Run.id).where(Run.project_id == project_id).limit(1)
    everything = everything.execution_options(**{INCLUDES_DELETING: True})
    return session.scalar(everything) is not None


def _delete_rest(
    context: WorkerContext, project_id: str, *, now: datetime, deadline: Deadline
) -> bool:
    """Delete its datasets, then its other rows, once no request can be under way."""
    with context.database.transaction() as session:
        project = session.get_one(Project, project_id)
        if project.deleting_at is None or project.deleting_at > now - PROJECT_GRACE:
            return False
    if not _delete_datasets(context, project_id, deadline=deadline):
        return False
    with context.database.transaction() as session:
        project = session.get_one(Project, project_id, with_for_update=True)
        num_rows = sum(
            _delete_of(session, table, project_id)
            for table in reversed(Base.metadata.sorted_tables)
            if "project_id" in table.columns and table.name not in STAYS
        )
        project.deleted_at = now
        audit.record_deletion(
            session,
            project_id=DEFAULT_PROJECT,
            actor=SERVICE,
            change={
                "table": "projects",
                "id": project_id,
                "action": "deleted",
                "before": {"num_rows": num_rows},
                "after": {},
            },
        )
    log.info("project %s is deleted", project_id)
    return True


def _delete_datasets(context: WorkerContext, project_id: str, *, deadline: Deadline) -> bool:
    """Delete versions of its datasets, the newest first, which nothing names; True once all are."""
    query = select(DatasetVersion.id).where(DatasetVersion.project_id == project_id)
    query = query.order_by(DatasetVersion.created_at.desc(), DatasetVersion.id.desc()).limit(1)
    while not deadline.is_over:
        with context.database.transaction() as session:
            version_id = session.scalar(query)
        if version_id is None:
            return True
        context.store.delete_prefix(f"{PREFIX}/{version_id}")
        with context.database.transaction() as session:
            session.execute(delete(DatasetVersion).where(DatasetVersion.id == version_id))
    return False


def _delete_of(session: Session, table: object, project_id: str) -> int:
    assert isinstance(table, Table)
    result = session.connection().execute(delete(table).where(table.c.project_id == project_id))
    return result.rowcount
