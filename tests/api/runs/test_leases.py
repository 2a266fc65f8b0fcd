"""Leases: one worker at a time, and the epoch refuses whoever comes late."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from api.runs.deadlines import RUN_LEASE_S
from api.runs.errors import LeaseLost
from api.runs.leases import Lease, claim_lease, due_runs, hold, release
from api.runs.store import lock_run
from api.tables import Run
from tests.api.fixtures.migrated import OTHER_PROJECT
from tests.api.fixtures.stage import Stage


def take(stage: Stage, run_id: str, owner: str) -> Lease | None:
    with stage.database.transaction() as session:
        return claim_lease(session, run_id, owner=owner, now=stage.now)


def due(stage: Stage) -> list[str]:
    with stage.database.transaction() as session:
        return list(due_runs(session, now=stage.now))


def test_a_run_has_one_lease_at_a_time(stage: Stage) -> None:
    run_id = stage.submit()
    lease = take(stage, run_id, "one")
    assert lease is not None
    assert (lease.epoch, lease.status, lease.attempt) == (1, "queued", None)
    assert take(stage, run_id, "two") is None
    stage.later(RUN_LEASE_S + 1)
    after = take(stage, run_id, "two")
    assert after is not None
    assert after.epoch == 2


def test_a_worker_whose_lease_was_taken_over_can_write_nothing(stage: Stage) -> None:
    run_id = stage.submit()
    late = take(stage, run_id, "one")
    assert late is not None
    stage.later(RUN_LEASE_S + 1)
    take(stage, run_id, "two")
    with pytest.raises(LeaseLost), stage.database.transaction() as session:
        hold(session, late)


def test_a_row_that_is_locked_is_skipped_not_waited_for(stage: Stage) -> None:
    run_id = stage.submit()
    with stage.database.transaction() as session:
        lock_run(session, run_id)
        assert take(stage, run_id, "one") is None


def test_a_released_run_is_due_when_it_was_said_to_be(stage: Stage) -> None:
    run_id = stage.submit()
    assert due(stage) == [run_id]
    lease = take(stage, run_id, "one")
    assert lease is not None
    assert due(stage) == []
    with stage.database.transaction() as session:
        release(hold(session, lease), due_at=stage.now + timedelta(seconds=5))
    assert due(stage) == []
    stage.later(5)
    assert due(stage) == [run_id]


def test_a_run_that_ended_is_never_due_and_gives_no_lease(stage: Stage) -> None:
    run_id = stage.submit()
    lease = take(stage, run_id, "one")
    assert lease is not None
    stage.cancel(run_id)
    with stage.database.transaction() as session:
        release(hold(session, lease), due_at=stage.now)
    stage.later(60)
    assert due(stage) == []
    assert take(stage, run_id, "two") is None


def test_the_longest_waiting_run_is_due_first(stage: Stage) -> None:
    made = [stage.submit() for _ in range(3)]
    stage.change(made[0], lambda run: setattr(run, "due_at", stage.now))
    assert due(stage) == [made[1], made[2], made[0]] or due(stage)[0] == made[1]


def test_every_project_has_its_turn_and_runs_at_work_come_before_waiting_ones(
    stage: Stage,
) -> None:
    at_work, _, _ = stage.running()
    crowd = [stage.submit() for _ in range(5)]
    waiting = stage.submit()
    stage.change(at_work, lambda run: setattr(run, "due_at", stage.now))
    with stage.database.transaction() as session:
        in_crowd = update(Run).where(Run.id.in_(crowd)).values(project_id=OTHER_PROJECT)
        session.execute(in_crowd)
        due_ids = list(due_runs(session, now=stage.now, limit=5))
    assert due_ids == [crowd[0], at_work, crowd[1], waiting, crowd[2]]
