"""Retention removes what the operator's settings name, says so, and leaves what people need."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import count

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from api.http.payloads.runs import describe_run
from api.results.artifacts.errors import ArtifactRemoved
from api.results.artifacts.retention import require_trajectories
from api.results.metrics import MetricFilters, read_metrics
from api.runs import store
from api.runs.errors import RunDeleted
from api.runs.status import RunStatus
from api.scheduling import control
from api.settings import Settings
from api.tables import AuditRecord, DeletedRun, Metric, OutcomeRecord, Run
from api.tables.database import Database
from hillclimb.protocol.rundir import run_key
from tests.api.fixtures.story import PROJECT, Story, spec
from tests.worker.runs.removal.conftest import BLOB_BYTES, BLOBS, End
from worker.context import WorkerContext
from worker.runs.removal import retention
from worker.runs.removal.deadline import Deadline
from worker.runs.removal.retention import MAX_POINTS, RetentionRules
from worker.runs.removal.sweep import sweep as carry_out

DAYS = 30.0


def apply(
    context: WorkerContext, story: Story, *, after: float = DAYS + 1, **rules: float
) -> dict[str, int]:
    """Sweep so many days after the story; return the numbers of runs that are not 0."""
    now = story.now + timedelta(days=after)
    numbers = retention.sweep(context, RetentionRules(**rules), now=now, deadline=Deadline(60.0))
    return {what: number for what, number in numbers.items() if number}


def test_by_default_everything_stays_for_ever(
    ended: End, story: Story, context: WorkerContext
) -> None:
    ended()
    required = {"DATABASE_URL": "x", "REDIS_URL": "x", "HILLCLIMB_BLOBS_URL": "x"}
    settings = Settings.model_validate(required | {"secret_key": "x"})
    assert RetentionRules.of(settings) == RetentionRules()
    assert apply(context, story, after=1e5) == {}
    assert len(context.store.list("")) == len(BLOBS)


def test_rollouts_go_when_their_time_is_over_and_a_request_for_them_says_so(
    ended: End, story: Story, context: WorkerContext, database: Database
) -> None:
    run_id = ended()
    live = story.running(spec("live"))
    assert apply(context, story, after=DAYS - 1, trajectories_days=DAYS) == {}
    assert apply(context, story, trajectories_days=DAYS) == {"trajectories": 1}
    assert apply(context, story, trajectories_days=DAYS) == {}
    left = {key.partition("/attempt-1/")[2] for key in context.store.list("")}
    assert "trajectories/step.jsonl.gz" not in left
    assert {"events/000001.jsonl", "token-values/step.jsonl.gz"} <= left
    with database.transaction() as session:
        run = store.get_run(session, PROJECT, run_id)
        with pytest.raises(ArtifactRemoved, match="HILLCLIMB_KEEP_TRAJECTORIES_DAYS"):
            require_trajectories(run)
        removed = describe_run(session, run).removed
        assert removed is not None
        assert removed.trajectories_removed_at is not None
        assert removed.token_values_removed_at is None
        assert describe_run(session, store.get_run(session, PROJECT, live)).removed is None
        assert session.scalar(select(func.count()).select_from(OutcomeRecord)) != 0
        record = session.scalars(select(AuditRecord)).one()
        assert (record.actor, record.target) == ("service", run_id)
        assert record.changes[0]["before"]["num_bytes"] == BLOB_BYTES
    assert apply(context, story, token_values_days=DAYS) == {"token_values": 1}
    left = {key.partition("/attempt-1/")[2] for key in context.store.list("")}
    assert not left & {"token-values/step.jsonl.gz", "vocabulary.json.gz"}


def test_an_import_is_as_old_as_its_import(
    ended: End, story: Story, context: WorkerContext, database: Database
) -> None:
    run_id = ended()
    with database.transaction() as session:
        store.lock_run(session, run_id).ended_at = story.now - timedelta(days=1000)
    assert apply(context, story, after=DAYS - 1, trajectories_days=DAYS, runs_days=DAYS) == {}
    assert apply(context, story, trajectories_days=DAYS) == {"trajectories": 1}


def test_rollouts_that_a_live_run_imitates_stay(
    ended: End, story: Story, context: WorkerContext, database: Database
) -> None:
    run_id = ended()
    imitator = story.submit()
    with database.transaction() as session:
        run = store.lock_run(session, imitator)
        run.spec = run.spec | {"sft": {"rollouts_of": run_id}}
    assert apply(context, story, trajectories_days=DAYS) == {}
    assert context.store.exists(run_key(run_id, "attempt-1/trajectories/step.jsonl.gz"))
    with database.transaction() as session:
        control.cancel(session, store.lock_run(session, imitator), actor="key:x", now=story.now)
    assert apply(context, story, trajectories_days=DAYS) == {"trajectories": 2}


def test_of_a_long_series_stay_its_ends_its_extremes_and_every_evaluation(
    ended: End, story: Story, context: WorkerContext, database: Database
) -> None:
    run_id = ended()
    rng = random.Random(3)
    values = [rng.gauss(0.0, 1.0) for _ in range(12_000)]
    values[7_001], values[7_002] = 99.0, -99.0  # a spike within one part
    with database.transaction() as session:
        point = {"run_id": run_id, "attempt": 2}
        long = {"name": "policy/loss", "decoding": "train"}
        evals = {"decoding": "greedy"}
        rows = [point | long | {"step": n, "value": value} for n, value in enumerate(values, 1)]
        # An attempt that was superseded: reads leave it out before and afterwards.
        rows += [
            point | long | {"step": n, "attempt": 1, "value": 1e9} for n in range(51, 12_000, 50)
        ]
        for name in ("eval/all/pass_at_1", "policy/loss"):
            rows += [
                point | evals | {"name": name, "step": n, "value": 0.5} for n in range(1, 2_000)
            ]
        session.execute(insert(Metric), rows)
        before = read(session, run_id)
    assert apply(context, story, metrics_days=DAYS) == {"metrics": 1}
    with database.transaction() as session:
        after = read(session, run_id)
        run = store.get_run(session, PROJECT, run_id)
        assert run.metrics_sampled_at is not None
    assert len(before["policy/loss", "greedy"]) == 1_999
    was, now = before.pop(("policy/loss", "train")), after.pop(("policy/loss", "train"))
    assert after == before
    assert len(was) == 12_000
    assert MAX_POINTS / 2 < len(now) <= MAX_POINTS
    assert set(now.items()) <= set(was.items())
    assert (min(now), max(now)) == (min(was), max(was))
    for start in range(0, 12_000, 480):  # ten parts each: the shape of a chart is the same
        window = [value for step, value in was.items() if start < step <= start + 480]
        kept = [value for step, value in now.items() if start < step <= start + 480]
        assert (min(kept), max(kept)) == (min(window), max(window))
    assert apply(context, story, metrics_days=DAYS) == {}


def test_many_series_are_thinned_over_several_sweeps(
    ended: End, story: Story, context: WorkerContext, database: Database
) -> None:
    run_id = ended()
    with database.transaction() as session:
        point = {"run_id": run_id, "attempt": 1, "decoding": "train", "value": 1.0}
        for name in ("a", "b", "c"):
            rows = [point | {"name": name, "step": n} for n in range(1, MAX_POINTS + 2)]
            session.execute(insert(Metric), rows)
    rules, now = RetentionRules(metrics_days=DAYS), story.now + timedelta(days=DAYS + 1)
    numbers = []
    while not numbers or not numbers[-1]:
        ticks = count()
        deadline = Deadline(2.0, lambda ticks=ticks: float(next(ticks)), 0.0)  # type: ignore[misc]
        numbers.append(retention.sweep(context, rules, now=now, deadline=deadline)["metrics"])
    assert numbers == [0, 1]
    with database.transaction() as session:
        names = select(Metric.name).where(Metric.decoding == "train").group_by(Metric.name)
        assert session.scalars(names.having(func.count() > MAX_POINTS)).all() == []


def read(session: Session, run_id: str) -> dict[tuple[str, str], dict[int, float]]:
    series = read_metrics(session, run_id, MetricFilters())
    return {
        (each["name"], each["decoding"]): {
            point["step"]: point["value"] for point in each["points"]
        }
        for each in series
    }


def test_runs_that_nothing_needs_are_deleted_after_their_time(
    ended: End, story: Story, context: WorkerContext, database: Database
) -> None:
    old, needed = ended(), ended("needed")
    live = story.running(spec("live"))
    with database.transaction() as session:
        run = store.lock_run(session, live)
        run.spec = run.spec | {
            "lineage": {"resumed_from": {"run_id": needed, "step": 40, "attempt": 1}}
        }
    assert apply(context, story, runs_days=DAYS) == {"runs": 1}
    with database.transaction() as session:
        with pytest.raises(RunDeleted, match="HILLCLIMB_KEEP_RUNS_DAYS"):
            store.get_run(session, PROJECT, old)
        assert session.get_one(DeletedRun, old).reason == "retention"
    assert carry_out(context, now=story.now) == 1
    with database.transaction() as session:
        assert set(session.scalars(select(Run.id))) == {needed, live}
        assert store.get_run(session, PROJECT, needed).status == RunStatus.CANCELLED
