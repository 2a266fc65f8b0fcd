"""The story of a run that ended, with its blobs, and the worker around it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from api.notices.deliver import Delivery
from api.runs import store
from api.scheduling import control
from api.tables.database import Database
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.rundir import run_key
from tests.api.fixtures.story import Story, spec
from worker.context import WorkerContext

BLOBS = (
    "attempt-1/events/000001.jsonl",
    "attempt-1/logs/000001.log",
    "attempt-1/trajectories/step.jsonl.gz",
    "attempt-1/token-values/step.jsonl.gz",
    "attempt-1/vocabulary.json.gz",
    "checkpoints/global_step_40/attempt-1/manifest.json",
    "checkpoints/global_step_40/attempt-1/policy/model.safetensors",
)
BLOB_BYTES = 10
End = Callable[..., str]


@pytest.fixture
def story(database: Database) -> Story:
    told = Story(database)
    told.prepare()
    return told


@pytest.fixture
def context(database: Database, tmp_path: Path) -> WorkerContext:
    delivery = Delivery(database=database, slack=None, public_url="http://127.0.0.1:1")
    blobs = DiskStore(tmp_path / "blobs")
    return WorkerContext(database=database, store=blobs, owner="worker-1", delivery=delivery)


@pytest.fixture
def ended(story: Story, context: WorkerContext) -> End:
    """Makes a run that trained, evaluated, saved a checkpoint and ended."""

    def make(name: str = "climb", *, num_steps: int = 1) -> str:
        run_id = story.running(spec(name))
        story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}))
        for step in range(1, num_steps + 1):
            story.push(run_id, story.step(run_id, step, {"booking": 0.5}))
        story.push(run_id, story.checkpoint(run_id, 40))
        story.finish(run_id, 40, ReasonCode.TRAINER_CRASHED)
        with story.database.transaction() as session:
            run = store.lock_run(session, run_id)
            control.cancel(session, run, actor="key:test", now=story.now)
        for blob in BLOBS:
            context.store.put(run_key(run_id, blob), b"x" * BLOB_BYTES)
        return run_id

    return make
