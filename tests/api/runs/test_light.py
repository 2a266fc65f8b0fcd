"""Previews go beside training: they take no slot, and nobody waits for them."""

from __future__ import annotations

import pytest

from api.database import Database
from api.runs import store
from tests.api.runs.stage import Stage
from trainer.contract.launch import OLD_KINDS
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
    (last,) = {*previews} - {first.run_id, second.run_id}
    assert status(stage, last) == "queued", "an offer that nobody may take would run out"
    busy = "As many runs of kind preview are under way as the runners take at once."
    assert stage.place(last) == (1, busy)
    stage.end(runner, first, ReasonCode.COMPLETED)
    assert stage.place(last) == (1, None)
    stage.advance(last)
    third = stage.claim(runner)
    assert third is not None
    assert {first.run_id, second.run_id, third.run_id} == set(previews)


def test_a_preview_waits_where_no_runner_is(stage: Stage) -> None:
    preview = stage.submit(kind="preview")
    stage.advance(preview)
    assert status(stage, preview) == "queued"


def test_previews_and_training_have_places_of_their_own(stage: Stage) -> None:
    runner = stage.register(slots=1)
    stage.launch(stage.submit(), runner)
    training = [stage.submit() for _ in range(2)]
    assert stage.plan(kind="preview") == (1, None)
    assert stage.plan() == (3, "All runner slots are in use.")
    previews = [stage.submit(kind="preview") for _ in range(3)]
    assert [stage.place(run_id)[0] for run_id in previews] == [1, 2, 3]
    assert [stage.place(run_id)[1] is None for run_id in previews] == [True, True, False]
    assert [stage.place(run_id)[0] for run_id in training] == [1, 2]
    assert stage.plan()[0] == 3, "previews are in nobody's way"


def test_a_runner_is_given_only_kinds_that_it_carries_out(stage: Stage) -> None:
    old = stage.register("old", kinds=OLD_KINDS)
    validation, training = stage.submit(kind="validate"), stage.submit()
    why = "No connected runner carries out runs of kind validate: update one."
    assert stage.place(validation) == (1, why)
    assert stage.plan(kind="validate") == (3, why)
    assert stage.place(training) == (1, None), "what nobody can do holds nobody up"
    stage.advance(validation)
    assert status(stage, validation) == "queued"
    stage.launch(training, old)

    new = stage.register("new")
    assert stage.place(validation) == (1, None)
    stage.advance(validation)
    assert stage.claim(old) is None
    plan = stage.claim(new)
    assert plan is not None
    assert plan.run_id == validation


def test_without_a_runner_every_place_is_counted(stage: Stage) -> None:
    runs = [stage.submit(kind=kind) for kind in ("train", "validate", "preview")]
    nobody = "No runner is connected."
    assert [stage.place(run_id) for run_id in runs] == [(1, nobody), (2, nobody), (1, nobody)]


def test_a_run_waits_behind_none_that_the_free_runner_does_not_carry_out(stage: Stage) -> None:
    """One old runner and one new one, as while runners are updated."""
    new = stage.register("new")
    first = stage.launch(stage.submit(kind="probe"), new)
    old = stage.register("old", kinds=OLD_KINDS)
    probe, training, later = stage.submit(kind="probe"), stage.submit(), stage.submit()
    assert stage.place(probe) == (1, "All runner slots are in use.")
    assert stage.place(training) == (2, None)
    assert stage.place(later) == (3, "Other runs come first.")
    stage.advance(later, probe)
    stage.launch(training, old)
    assert stage.place(later) == (2, "All runner slots are in use.")
    stage.end(new, first)
    assert stage.place(probe) == (1, None)
    assert stage.place(later) == (2, "Other runs come first.")
    stage.launch(probe, new)


def test_an_offer_that_only_one_runner_may_take_leaves_the_others_free(stage: Stage) -> None:
    new, old = stage.register("new"), stage.register("old", kinds=OLD_KINDS)
    probe, training, later = stage.submit(kind="probe"), stage.submit(), stage.submit()
    stage.advance(probe, training, later)
    assert status(stage, later) == "queued"
    assert {plan.run_id for plan in (stage.claim(old), stage.claim(new)) if plan} == {
        probe,
        training,
    }
