"""Previews go beside training: they take no slot, and nobody waits for them."""

from __future__ import annotations

import pytest

from api.database import Database
from api.runs import store
from tests.api.runs.stage import Stage
from trainer.contract.reasons import ReasonCode


@pytest.fixture
def stage(database: Database) -> Stage:
    return Stage(database)


def status(stage: Stage, run_id: str) -> str:
    with stage.database.transaction() as session:
        return store.lock_run(session, run_id).status


def test_a_preview_starts_on_a_runner_whose_slots_are_taken(stage: Stage) -> None:
    runner = stage.register(slots=1)
    training = stage.launch(stage.submit(), runner)
    waiting, preview = stage.submit(), stage.submit(kind="preview")
    stage.advance(waiting, preview)
    assert status(stage, waiting) == "queued"
    plan = stage.claim(runner)
    assert plan is not None
    assert plan.run_id == preview
    assert stage.claim(runner) is None
    stage.end(runner, plan)
    stage.end(runner, training)
    stage.advance(waiting)
    next_plan = stage.claim(runner)
    assert next_plan is not None
    assert next_plan.run_id == waiting


def test_a_preview_takes_no_slot_from_training(stage: Stage) -> None:
    runner = stage.register(slots=1)
    preview = stage.launch(stage.submit(kind="preview"), runner)
    training = stage.launch(stage.submit(), runner)
    assert {preview.spec.kind, training.spec.kind} == {"preview", "train"}


def test_a_runner_gets_only_so_many_previews_at_once(stage: Stage) -> None:
    runner = stage.register(slots=4)
    previews = [stage.submit(kind="preview") for _ in range(3)]
    stage.advance(*previews)
    first, second = stage.claim(runner), stage.claim(runner)
    assert first is not None
    assert second is not None
    assert stage.claim(runner) is None
    stage.end(runner, first, ReasonCode.COMPLETED)
    third = stage.claim(runner)
    assert third is not None
    assert {first.run_id, second.run_id, third.run_id} == set(previews)


def test_a_preview_waits_where_no_runner_is(stage: Stage) -> None:
    preview = stage.submit(kind="preview")
    stage.advance(preview)
    assert status(stage, preview) == "queued"
