"""One queue per project: every run that needs a runner waits for a free slot, previews too."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.runs import store
from api.scheduling.capacity.arrivals import arrive
from api.scheduling.queue import queue_position
from api.tables.database import Database
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.stage import Stage

NO_RUNNER = "No runner is connected."
FULL = "All runner slots are in use."
BEHIND = "Other runs come first."


@pytest.fixture
def stage(database: Database) -> Stage:
    return Stage(database)


def test_a_preview_waits_for_a_slot_like_any_run(stage: Stage) -> None:
    runner = stage.register(slots=1)
    training = stage.launch(stage.submit(), runner)
    preview = stage.submit(kind="preview")
    stage.advance(preview)
    assert stage.status(preview) == "queued"
    assert stage.place(preview) == (1, FULL)
    assert stage.claim(runner) is None
    stage.end(runner, training)
    assert stage.place(preview) == (1, None)
    stage.launch(preview, runner)


def test_a_preview_takes_a_slot(stage: Stage) -> None:
    runner = stage.register(slots=1)
    preview = stage.launch(stage.submit(kind="preview"), runner)
    training = stage.submit()
    stage.advance(training)
    assert stage.place(training) == (1, FULL)
    stage.end(runner, preview)
    stage.launch(training, runner)


def test_a_preview_of_a_spec_that_rents_waits_for_a_runner(stage: Stage) -> None:
    backend = {"type": "skypilot", "skypilot": {"candidates": [{"infra": "aws"}]}}
    preview = stage.submit(kind="preview", backend=backend, experimental=True)
    assert stage.place(preview) == (1, NO_RUNNER)
    stage.launch(preview, stage.register())


def test_runs_of_all_kinds_have_places_in_one_queue(stage: Stage) -> None:
    runs = [stage.submit(kind=kind) for kind in ("train", "preview", "validate", "probe")]
    assert [stage.place(run_id) for run_id in runs] == [(n, NO_RUNNER) for n in (1, 2, 3, 4)]
    assert stage.plan(kind="preview") == (5, NO_RUNNER)
    stage.register(slots=2)
    assert [stage.place(run_id)[1] for run_id in runs] == [None, None, BEHIND, BEHIND]
    stage.advance(*reversed(runs))
    assert [stage.status(run_id) for run_id in runs] == ["provisioning"] * 2 + ["queued"] * 2
    assert [stage.place(run_id) for run_id in runs[2:]] == [(1, FULL), (2, FULL)]


def test_no_slot_is_promised_twice(stage: Stage) -> None:
    small, large = stage.register("small"), stage.register("large", slots=2)
    runs = [stage.submit() for _ in range(4)]
    stage.advance(*runs)
    assert [stage.status(run_id) for run_id in runs] == ["provisioning"] * 3 + ["queued"]
    plans = [stage.claim(runner) for runner in (small, small, large, large, large)]
    assert [plan is not None for plan in plans] == [True, False, True, True, False]


def test_a_runner_that_returns_with_fewer_slots_takes_none_from_others(stage: Stage) -> None:
    runner = stage.register("box", slots=2)
    plans = [stage.launch(stage.submit(), runner) for _ in range(2)]
    stage.register("box", slots=1, attempts=tuple(plan.attempt_id for plan in plans))
    stage.register("other")
    assert stage.plan() == (1, None)


@pytest.mark.parametrize("num_slots", [0, 1, 2, 5])
def test_a_submission_finds_the_place_that_its_run_then_has(stage: Stage, num_slots: int) -> None:
    on_machines = {"type": "skypilot", "skypilot": {"candidates": [{"infra": "aws"}]}}
    stage.submit(backend=on_machines, experimental=True)
    recovering, _waiting, cancelled = (stage.submit() for _ in range(3))
    stage.cancel(cancelled)
    stage.change(recovering, lambda run: setattr(run, "status", "recovering"))
    if num_slots:
        stage.register(slots=num_slots)
    # Of two submissions at once the younger one may get the lock first.
    late = stage.submit()
    stage.change(late, lambda run: setattr(run, "created_at", stage.now + timedelta(seconds=1)))
    with stage.database.transaction() as session:
        arrival = arrive(session, PROJECT, now=stage.now)
    run_id = stage.submit()
    with stage.database.transaction() as session:
        run = store.get_run(session, PROJECT, run_id)
        found = queue_position(session, run, now=stage.now, arrival=arrival)
        assert found == queue_position(session, run, now=stage.now)
    assert found.position == 3
