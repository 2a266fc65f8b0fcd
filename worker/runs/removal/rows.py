"""Deletes the rows of a run: the many in batches, the few and the run itself in one transaction."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, CursorResult, Table, delete, select, text
from sqlalchemy.orm import Session

from api.admission.deletion.runs import unlink
from api.tables import (
    Attempt,
    Base,
    BudgetExtension,
    Checkpoint,
    Cluster,
    ComputeRecord,
    DeletedRun,
    Eval,
    ExperimentRun,
    GuardTrip,
    LaunchTry,
    Metric,
    OutcomeRecord,
    PatternSearch,
    RescoredOutcome,
    Run,
    RunEvent,
    StepSignalRecord,
)
from api.tables.access import audit
from api.tables.training.deleted import INCLUDES_DELETING

BATCH = 5000
"""Rows of one transaction: it takes a tenth of a second, and no request waits for it."""
MANY: tuple[type[Base], ...] = (
    OutcomeRecord,
    Metric,
    RunEvent,
    RescoredOutcome,
    PatternSearch,
    StepSignalRecord,
    ComputeRecord,
    Eval,
    Checkpoint,
    GuardTrip,
)
"""Tables with rows by the step or the rollout, which nothing else names."""
FEW: tuple[type[Base], ...] = (BudgetExtension, ExperimentRun, Cluster, Attempt)
"""Tables with some rows, in an order in which none names a row that is deleted before it."""


def delete_batch(session: Session, table: type[Base], run_id: str, *, limit: int = BATCH) -> int:
    """Delete up to `limit` rows of a run; return their number. Waits for no lock."""
    # A sequential scan would pass the rows of the batches before, dead but not yet reclaimed.
    session.execute(text("SET LOCAL enable_seqscan = off"))
    name = _table(table).name
    statement = text(
        f"DELETE FROM {name} WHERE ctid = ANY(ARRAY("
        f"SELECT ctid FROM {name} WHERE run_id = :run_id LIMIT :limit FOR UPDATE SKIP LOCKED))"
    )
    return _count(session.execute(statement, {"run_id": run_id, "limit": limit}))


def delete_rest(session: Session, run_id: str, *, now: datetime) -> bool:
    """Delete the run and what is left of its rows, and record that it is gone.

    False where another process does so now, or has done so.
    """
    query = select(Run).where(Run.id == run_id, Run.deleting_at.is_not(None))
    query = query.with_for_update(skip_locked=True)
    run = session.scalar(query.execution_options(**{INCLUDES_DELETING: True}))
    if run is None:
        return False
    unlink(session, run)
    clusters = select(Cluster.id).where(Cluster.run_id == run_id)
    num_rows = _delete(session, LaunchTry, LaunchTry.cluster_id.in_(clusters))
    for table in (*MANY, *FEW):
        num_rows += _delete(session, table, _table(table).c.run_id == run_id)
    num_rows += _delete(session, Run, Run.id == run_id)
    deleted = session.get_one(DeletedRun, run_id, with_for_update=True)
    deleted.num_rows += num_rows
    deleted.completed_at = now
    facts = {
        "name": deleted.name,
        "reason": deleted.reason,
        "num_rows": deleted.num_rows,
        "num_bytes": deleted.num_bytes,
    }
    audit.record_deletion(
        session,
        project_id=deleted.project_id,
        actor=deleted.deleted_by,
        change={"table": "runs", "id": run_id, "action": "deleted", "before": facts, "after": {}},
    )
    return True


def _delete(session: Session, table: type[Base], condition: ColumnElement[bool]) -> int:
    statement = delete(table).where(condition)
    return _count(session.execute(statement, execution_options={"synchronize_session": False}))


def _table(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table


def _count(result: object) -> int:
    assert isinstance(result, CursorResult)
    return result.rowcount
