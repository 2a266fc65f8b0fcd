"""Runs that are well are put off together: exactly those for which a look would find nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api.runs.deadlines import DEADLINES_S, QUEUE_RECHECK_S, RECHECK_S, RUNNER_LEASE_S
from api.runs.leases import due_runs
from api.runs.status import RunStatus
from api.scheduling.outages.deferral import defer_idle, wake_next
from api.tables import ProjectQuota, Run
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make

STEP_S = RUNNER_LEASE_S - 5.0


def due(stage: Stage) -> list[str]:
    with stage.database.transaction() as session:
        return list(due_runs(session, now=stage.now))


def quieten(stage: Stage) -> int:
    with stage.database.transaction() as session:
        return defer_idle(session, now=stage.now)


def training(stage: Stage) -> tuple[str, str, str]:
    """Run, runner and attempt."""
    run_id, runner_id, plan = stage.running()
    return run_id, runner_id, plan.attempt_id


def test_a_run_that_trains_is_put_off_without_a_look(stage: Stage) -> None:
    run_id, runner_id, attempt_id = training(stage)
    stage.later(RECHECK_S)
    stage.beat(runner_id, attempt_id)
    assert due(stage) == [run_id]
    assert (quieten(stage), due(stage)) == (1, [])
    stage.later(RECHECK_S)
    assert due(stage) == [run_id]


def wake(stage: Stage) -> list[str]:
    with stage.database.transaction() as session:
        wake_next(session, now=stage.now)
    return due(stage)


def test_runs_behind_the_free_slots_are_put_off(stage: Stage) -> None:
    waiting = [stage.submit() for _ in range(3)]
    assert (quieten(stage), due(stage)) == (3, [])
    stage.register(slots=2)
    stage.later(QUEUE_RECHECK_S)
    stage.register(slots=2)
    assert (quieten(stage), due(stage)) == (1, waiting[:2])
    for run_id in waiting[:2]:
        stage.advance(run_id)
    assert [stage.status(run_id) for run_id in waiting] == ["provisioning"] * 2 + ["queued"]


def test_those_whose_turn_has_come_are_due_at_once(stage: Stage) -> None:
    runner = stage.register()
    training = stage.launch(stage.submit(), runner)
    waiting = [stage.submit() for _ in range(3)]
    assert quieten(stage) == 1 + len(waiting)
    assert wake(stage) == []
    stage.later(1)
    stage.end(runner, training)
    assert wake(stage) == waiting[:1]
    stage.advance(waiting[0])
    stage.later(1)
    stage.register(slots=3)
    # One of the three slots is promised to the first.
    assert [run_id for run_id in wake(stage) if run_id != waiting[0]] == waiting[1:]


def test_no_run_is_woken_that_a_quota_holds_back(stage: Stage) -> None:
    with stage.database.transaction() as session:
        session.add(ProjectQuota(project_id=PROJECT, running_runs=1, set_by="operator"))
    runner = stage.register(slots=3)
    stage.launch(stage.submit(), runner)
    second = stage.submit()
    assert stage.place(second) == (1, "The project's quota of 1 running runs is used up.")
    assert quieten(stage) == 2
    assert wake(stage) == []


def test_a_run_that_recovers_is_woken_before_older_ones(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    waiting = stage.submit()
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED)
    assert stage.status(run_id) == "recovering"
    assert quieten(stage) == 1
    assert due(stage) == [run_id]
    assert waiting not in wake(stage)


def test_an_offer_is_put_off_until_its_time_is_over(stage: Stage) -> None:
    stage.register()
    run_id = stage.submit()
    stage.advance(run_id)
    stage.later(RECHECK_S)
    assert quieten(stage) == 1
    stage.later(DEADLINES_S[RunStatus.PROVISIONING] or 0)
    assert (quieten(stage), due(stage)) == (0, [run_id])


def silence(stage: Stage, runner_id: str, attempt_id: str) -> None:
    """Nobody is heard any more."""
    del runner_id, attempt_id
    stage.later(RUNNER_LEASE_S + 1)


def disown(stage: Stage, runner_id: str, attempt_id: str) -> None:
    """The runner lives, and holds the attempt no more."""
    del attempt_id
    for _ in range(2):
        stage.later(STEP_S)
        stage.beat(runner_id)


def overrun(stage: Stage, runner_id: str, attempt_id: str) -> None:
    """Held, and without progress for too long."""
    stage.later(10 * 3600.0)
    stage.beat(runner_id, attempt_id)


@pytest.mark.parametrize("trouble", [silence, disown, overrun])
def test_a_run_in_trouble_is_looked_at(
    stage: Stage, trouble: Callable[[Stage, str, str], None]
) -> None:
    run_id, runner_id, attempt_id = training(stage)
    trouble(stage, runner_id, attempt_id)
    assert (quieten(stage), due(stage)) == (0, [run_id])
    before = stage.run(run_id)
    stage.advance(run_id)
    after = stage.run(run_id)
    assert (before.status, before.deadline_at) != (after.status, after.deadline_at)


def test_a_run_whose_trainer_speaks_is_well_though_its_runner_is_silent(stage: Stage) -> None:
    runner_id, run_id = stage.register(), stage.submit()
    plan = stage.launch(run_id, runner_id)
    stage.later(RUNNER_LEASE_S + 1)
    stage.push(plan, make.started(1))
    stage.later(RECHECK_S)
    assert quieten(stage) == 1


def test_an_attempt_that_ended_is_looked_at(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED, last_seq=5)
    assert (quieten(stage), due(stage)) == (0, [run_id])


def test_a_run_that_somebody_works_on_is_left_alone(stage: Stage) -> None:
    run_id, runner_id, attempt_id = training(stage)
    stage.later(RECHECK_S)
    stage.beat(runner_id, attempt_id)
    with stage.database.transaction() as session:
        session.get_one(Run, run_id, with_for_update=True)
        assert quieten(stage) == 0
