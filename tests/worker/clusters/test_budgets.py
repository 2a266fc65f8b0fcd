"""What one run's budget means for another, and for the run that goes on from it."""

from __future__ import annotations

import pytest

from api.clusters import budgets
from api.runs import store
from api.runs.errors import InvalidTransition
from api.runs.status import RunStatus
from api.runs.transitions import move
from tests import factories as make
from tests.worker.clusters.scene import ClusterScene
from trainer.contract.launch import LaunchPlan
from trainer.contract.reasons import ReasonCode

S = RunStatus


def running(far: ClusterScene, name: str, usd: float) -> tuple[str, LaunchPlan]:
    run_id = far.submit(name, budget={"usd": usd})
    far.run_for(30)
    plan = far.enter(run_id)
    far.push(plan, make.started(1))
    return run_id, plan


def test_a_run_that_is_wrapped_up_over_its_budget_keeps_no_other_from_being_stopped(
    far: ClusterScene,
) -> None:
    wrapped, _ = running(far, "first", usd=1.0)
    with far.parts.database.transaction() as session:
        move(session, store.lock_run(session, wrapped), S.FINALIZING, now=far.now)
    spends, plan = running(far, "second", usd=1.0)
    for _ in range(10):
        far.clouds.pass_time(30)
        far.look_at_budgets()
    assert (far.status(wrapped), far.status(spends)) == (S.FINALIZING, S.PAUSING)
    assert far.beat(plan) == "stop"


def test_a_run_that_goes_on_from_one_that_ended_has_what_was_left_of_the_budget(
    far: ClusterScene,
) -> None:
    run_id, plan = running(far, "first", usd=10.0)
    far.push(plan, make.saved(2, 1))
    far.run_for(600, every_s=60.0)
    far.report(plan, ReasonCode.SPEC_REJECTED, last_seq=2)
    far.run_for(120)
    assert far.status(run_id) is S.FAILED
    with far.parts.database.transaction() as session:
        spent = budgets.spent_by_run(session, run_id, now=far.now).usd
    assert 3.0 < spent < 10.0
    next_id = far.resume(run_id)
    assert next_id != run_id
    assert far.run(next_id).spec["budget"]["usd"] == pytest.approx(10.0 - spent)


def test_a_run_that_ended_with_its_budget_used_up_does_not_go_on_before_it_is_extended(
    far: ClusterScene,
) -> None:
    run_id, plan = running(far, "first", usd=3.0)
    far.push(plan, make.saved(2, 1))
    far.clouds.pass_time(600)
    far.report(plan, ReasonCode.SPEC_REJECTED, last_seq=2)
    far.run_for(120)
    with pytest.raises(InvalidTransition, match="extend it"):
        far.resume(run_id)
    far.extend(run_id, usd=5.0)
    assert far.run(far.resume(run_id)).spec["budget"]["usd"] < 5.0
