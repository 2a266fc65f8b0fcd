"""The column that the database computes from a spec says what the code says."""

from __future__ import annotations

from typing import get_args

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql.asyncpg import dialect

from api.runs.queue_class import QueueClass, has_queue_class, is_waiting, queue_class_of
from api.tables import Run
from hillclimb.spec.backend.backend import BackendSpec
from hillclimb.spec.sections import RunKind
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.stage import Stage
from tests.fixtures.migrated import Migrated

BACKENDS = get_args(BackendSpec.model_fields["type"].annotation)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", get_args(RunKind))
def test_every_kind_of_run_is_in_one_queue(stage: Stage, kind: str, backend: str) -> None:
    run_id = stage.submit()
    parts = {"kind": kind, "backend": {"type": backend}}
    stage.change(run_id, lambda run: setattr(run, "spec", {**run.spec, **parts}))
    with stage.database.transaction() as session:
        run = session.get_one(Run, run_id)
        session.refresh(run)
        assert run.queue_class == queue_class_of(run)
        where = Run.project_id == PROJECT, has_queue_class(QueueClass(queue_class_of(run)))
        assert session.query(Run.id).where(*where, is_waiting()).all() == [(run_id,)]


def test_any_waiting_run_is_counted_in_the_index(stage: Stage, emptied: Migrated) -> None:
    """The plan for any project, of which the database knows nothing, uses it too."""
    # The rows of earlier tests are gone, but their pages and what autovacuum has found of them
    # count in the costs of each index.
    emptied.admin.execute("VACUUM (FULL, ANALYZE) runs")
    where = Run.project_id == PROJECT, has_queue_class(QueueClass.RUNNER), is_waiting()
    where += (Run.deleting_at.is_(None),)  # as `hide_deleting` adds
    query = select(func.count()).select_from(Run).where(*where)
    compiled = query.compile(dialect=dialect(), compile_kwargs={"render_postcompile": True})
    with stage.database.transaction() as session:
        session.execute(text("SET LOCAL enable_seqscan = off"))
        explain = session.connection().exec_driver_sql(f"EXPLAIN (GENERIC_PLAN) {compiled}")
        assert any("ix_runs_waiting" in line for line in explain.scalars())
