"""Deletion of a run leaves nothing of it, wherever a process dies, and holds nobody up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, count, repeat

import pytest
from sqlalchemy import insert, select, text

from api.admission.deletion.runs import RUN_DELETED, delete_run
from api.admission.lineage.fork import ForkRequest, forked_spec
from api.admission.lineage.resume import resume
from api.admission.submit import submit
from api.clusters import budgets
from api.runs import store
from api.runs.errors import CheckpointNotFound, RunDeleted, RunInUse, RunNotFound
from api.scheduling import control
from api.scheduling.capacity import quotas
from api.tables import (
    AuditRecord,
    CampaignCell,
    DeletedRun,
    Metric,
    OutcomeRecord,
    ProjectLimits,
    Run,
)
from api.tables.access.identity import Principal, Scope
from api.tables.database import Database
from api.tables.training.deleted import INCLUDES_DELETING
from hillclimb.blobs.base import StoreError
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.rundir import run_key
from tests.api.fixtures.one_row_each import fill, traces
from tests.api.fixtures.story import PROJECT, START, Story, spec
from tests.worker.runs.removal.conftest import BLOB_BYTES, BLOBS, End
from worker.context import WorkerContext
from worker.deadlines import LATE_BLOBS
from worker.runs.removal import rows
from worker.runs.removal.deadline import Deadline
from worker.runs.removal.sweep import sweep

ADMIN = Principal(
    project_id=PROJECT,
    key_id="key_admin",
    key_name="admin",
    scopes=frozenset({Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.ADMIN}),
)
NOW = START + timedelta(hours=1)
KEEPS = frozenset({"deleted_runs", "audit_records"})
"""Tables that name a deleted run: its record, and the audit."""


def request(database: Database, run_id: str, *, now: datetime = NOW) -> None:
    with database.transaction() as session:
        delete_run(session, run_id, ADMIN, now=now)


def test_of_a_run_with_a_row_in_every_table_nothing_is_left(
    ended: End, context: WorkerContext, database: Database
) -> None:
    run_id, other_id = ended(), ended("other")
    with database.transaction() as session:
        filled = fill(session, PROJECT, run_id, without=("experiment_runs", "issues"))
        before = traces(session, run_id)
    assert {"outcomes", "metrics", "events", "attempts", "clusters", "outbox", "evals"} <= set(
        before
    )
    assert {"idempotency_keys", "slack_requests", "campaign_cells", "offers"} <= set(filled)
    with database.transaction() as session:
        others = traces(session, other_id)
    request(database, run_id)
    assert sweep(context, now=NOW) == 1
    with database.transaction() as session:
        assert set(traces(session, run_id)) == KEEPS
        assert traces(session, other_id) == others
        cell = session.scalars(select(CampaignCell)).one()
        assert (cell.run_id, cell.problem) == (None, RUN_DELETED)
        deleted = session.get_one(DeletedRun, run_id)
        assert (deleted.num_bytes, deleted.completed_at) == (BLOB_BYTES * len(BLOBS), NOW)
        assert deleted.num_rows > before["outcomes"] + before["events"]
        record = session.scalars(select(AuditRecord).where(AuditRecord.target == run_id)).one()
        assert record.actor == "key:admin"
        assert record.changes[0]["before"]["num_bytes"] == BLOB_BYTES * len(BLOBS)
    assert {key.split("/")[1] for key in context.store.list("")} == {other_id}


def test_a_process_that_dies_anywhere_leaves_a_run_that_nobody_sees_and_the_next_one_finishes(
    ended: End, context: WorkerContext, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every transaction and every call to the store is the last one of a process, in turn."""
    monkeypatch.setattr(rows, "BATCH", 7)
    run_id = ended()
    request(database, run_id)
    num_deaths = 0
    while True:
        survivor = MortalStore(context.store, lives=num_deaths % 4)
        deadline = Deadline(1.0, counting(num_deaths), 0.0)
        done = sweep(replace(context, store=survivor), now=NOW, deadline=deadline)
        with database.transaction() as session:
            with pytest.raises(RunDeleted):
                store.get_run(session, PROJECT, run_id)
            left = session.scalars(
                select(Run.id).execution_options(**{INCLUDES_DELETING: True})
            ).all()
        assert left == ([] if done else [run_id])
        if done:
            break
        num_deaths += 1
        assert num_deaths < 200
    assert num_deaths > 5
    with database.transaction() as session:
        assert set(traces(session, run_id)) == KEEPS
    assert context.store.list("") == ()


def counting(number: int) -> Callable[[], float]:
    """A clock that shows 0 so many times, and then that the time is over."""
    shows = chain([0.0] * number, repeat(2.0))
    return lambda: next(shows)


class MortalStore(DiskStore):
    """A store whose process dies after some deletions."""

    def __init__(self, store: DiskStore, *, lives: int) -> None:
        super().__init__(store._root)
        self._lives = lives

    def delete_prefix(self, prefix: str) -> int:
        if self._lives == 0:
            raise StoreError("the machine is gone")
        self._lives -= 1
        return super().delete_prefix(prefix)


def test_blobs_that_a_trainer_uploads_after_the_deletion_are_deleted_a_day_later(
    ended: End, context: WorkerContext, database: Database
) -> None:
    run_id = ended()
    request(database, run_id)
    assert sweep(context, now=NOW) == 1
    context.store.put(run_key(run_id, "attempt-1/events/000002.jsonl"), b"late")
    sweep(context, now=NOW + LATE_BLOBS)
    assert context.store.list("") != ()
    sweep(context, now=NOW + LATE_BLOBS + timedelta(seconds=1))
    assert context.store.list("") == ()


def test_deleting_a_run_gives_back_neither_money_nor_submissions(
    ended: End, context: WorkerContext, database: Database
) -> None:
    run_id = ended()
    began = START - timedelta(hours=2)
    with database.transaction() as session:
        session.add(
            ProjectLimits(
                project_id=PROJECT,
                usd=100.0,
                max_clusters=1,
                since=START - timedelta(days=1),
                set_by="key:admin",
            )
        )
        fill(session, PROJECT, run_id, without=("experiment_runs", "issues", "project_limits"))
        session.execute(
            text(
                "UPDATE clusters SET billed_from = :began, terminated_at = :ended, hourly_usd = 3.0"
            ),
            {"began": began, "ended": began + timedelta(hours=1)},
        )

    def used() -> tuple[float, float, int]:
        with database.transaction() as session:
            allowance = budgets.of_project(session, PROJECT, now=NOW)
            assert allowance is not None
            use = quotas.use_of(session, PROJECT, now=START + timedelta(minutes=30))
            spent = allowance.spent
            return spent.usd, spent.hours, use["submissions_per_hour"]

    before = used()
    assert before == (3.0, 1.0, 1)
    request(database, run_id, now=START + timedelta(minutes=20))
    assert used() == before
    sweep(context, now=NOW)
    assert used() == before


def test_a_deletion_and_a_run_that_would_start_from_it_do_not_pass_each_other(
    ended: End, database: Database
) -> None:
    source = ended()
    resumed = spec("second").model_copy(
        update={
            "lineage": spec().lineage.model_validate(
                {"resumed_from": {"run_id": source, "step": 40, "attempt": 1}}
            )
        }
    )
    outcome: list[Exception | None] = []

    def delete() -> None:
        try:
            request(database, source)
            outcome.append(None)
        except RunInUse as error:
            outcome.append(error)

    thread = threading.Thread(target=delete)
    with database.transaction() as session:
        submit(session, resumed, project_id=PROJECT, actor="key:test", now=NOW)
        thread.start()
        thread.join(timeout=0.3)
        assert thread.is_alive(), "the deletion waits for the submission"
    thread.join(timeout=10)
    assert isinstance(outcome[0], RunInUse)
    assert [problem.code for problem in outcome[0].problems] == ["run_not_ended"]
    # The other order: a submission after the request finds no such run.
    second = ended()
    request(database, second)
    lineage = {"resumed_from": {"run_id": second, "step": 40, "attempt": 1}}
    late = resumed.model_copy(update={"lineage": resumed.lineage.model_validate(lineage)})
    with database.transaction() as session, pytest.raises((RunNotFound, CheckpointNotFound)):
        submit(session, late, project_id=PROJECT, actor="key:test", now=NOW)


def test_a_fork_goes_on_without_its_parent(
    ended: End, story: Story, context: WorkerContext, database: Database
) -> None:
    parent_id = ended()
    with database.transaction() as session:
        parent = store.get_run(session, PROJECT, parent_id)
        made = forked_spec(
            session, parent, ForkRequest(step=40, changes={"schedule.total_steps": 100})
        )
        made_id = submit(session, made, project_id=PROJECT, actor="key:test", now=NOW).id
    with database.transaction() as session, pytest.raises(RunInUse, match="has not ended"):
        delete_run(session, parent_id, ADMIN, now=NOW)
    story.launch(made_id)
    story.push(made_id, story.started(made_id), story.checkpoint(made_id, 60))
    story.finish(made_id, 60, ReasonCode.TRAINER_CRASHED)
    with database.transaction() as session:
        control.cancel(session, store.lock_run(session, made_id), actor="key:test", now=story.now)
    request(database, parent_id)
    sweep(context, now=NOW)
    with database.transaction() as session:
        fork = store.lock_run(session, made_id)
        again = resume(session, fork, actor="key:test", now=NOW)
        assert again.spec["lineage"]["resumed_from"]["step"] == 60
        assert again.spec["lineage"]["forked_from"] is None
        # A fork of it that begins where it began has nothing to begin from, and says so.
        start = forked_spec(session, fork, ForkRequest(changes={}))
        with pytest.raises((RunNotFound, CheckpointNotFound)):
            submit(session, start, project_id=PROJECT, actor="key:test", now=NOW)


def test_requests_are_answered_while_many_rows_are_deleted(
    ended: End, story: Story, context: WorkerContext, database: Database
) -> None:
    """No batch locks what others read or write: another run's events go in meanwhile."""
    run_id = ended()
    with database.transaction() as session:
        points = [
            {"run_id": run_id, "name": f"m{n % 50}", "decoding": "train", "step": n, "attempt": 1}
            | {"value": 1.0}
            for n in range(20_000)
        ]
        session.execute(insert(Metric), points)
    request(database, run_id)
    with database.transaction() as session:
        assert rows.delete_batch(session, Metric, run_id) == rows.BATCH
        # The batch is not committed yet.
        writer = story.running(spec("writer"))
        story.push(writer, story.step(writer, 1, {"booking": 0.5}))
    assert sweep(context, now=NOW, deadline=Deadline(seconds=60.0)) == 1
    with database.transaction() as session:
        assert session.scalars(select(OutcomeRecord.run_id).distinct()).all() == [writer]


def test_a_sweep_ends_in_time_and_the_next_ones_finish(
    ended: End, context: WorkerContext, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BATCH", 20)
    run_id = ended()
    request(database, run_id)
    ticks = map(float, count())
    numbers: list[int] = []
    while not numbers or numbers[-1] == 0:
        deadline = Deadline(5.0, lambda: next(ticks), next(ticks))
        numbers.append(sweep(context, now=NOW, deadline=deadline))
        assert len(numbers) < 100
    assert len(numbers) > 2
    with database.transaction() as session:
        assert session.get_one(DeletedRun, run_id).completed_at == NOW


def test_a_run_that_somebody_else_deletes_at_the_same_moment_is_deleted_once(
    ended: End, database: Database
) -> None:
    run_id = ended()
    errors: list[Exception] = []

    def delete() -> None:
        try:
            request(database, run_id)
        except RunNotFound as error:
            errors.append(error)

    thread = threading.Thread(target=delete)
    with database.transaction() as session:
        delete_run(session, run_id, ADMIN, now=NOW)
        thread.start()
        thread.join(timeout=0.3)
    thread.join(timeout=10)
    assert [type(error) for error in errors] == [RunNotFound]


def refusals(database: Database, run_id: str) -> list[str]:
    with database.transaction() as session:
        try:
            delete_run(session, run_id, ADMIN, now=NOW)
        except RunInUse as error:
            session.rollback()
            return [problem.code for problem in error.problems]
        session.rollback()
    return []


@pytest.mark.parametrize("source", ["run:{}", "run:{}@40", "run:{}@40/attempt-1"])
def test_weights_over_which_an_ended_run_loads_its_checkpoints_stay_as_long_as_these(
    ended: End, database: Database, source: str
) -> None:
    base, other = ended("base"), ended("other")
    with database.transaction() as session:
        run = store.lock_run(session, other)
        run.spec = run.spec | {"model": run.spec["model"] | {"source": source.format(base)}}
    assert refusals(database, base) == ["run_starts_from_it"]
    assert refusals(database, other) == []
    with database.transaction() as session:
        saved = store.newest_checkpoint(session, other)
        assert saved is not None
        saved.deleted_at = NOW
    assert refusals(database, base) == []


def test_a_run_stays_that_spends_of_the_budget_of_the_run_it_was_resumed_from(
    ended: End, story: Story, database: Database
) -> None:
    first = ended()
    with database.transaction() as session:
        run = resume(session, store.lock_run(session, first), actor="key:me", now=NOW)
        control.cancel(session, run, actor="key:me", now=NOW)
        run.spec, second = run.spec | {"budget": {"usd": 10.0, "hours": None}}, run.id
    assert refusals(database, second) == ["budget_shared"]
    request(database, first)
    assert refusals(database, second) == []
