"""What one run's budget means for another, and for the run that goes on from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import select

from api.clusters import budgets
from api.notices.outbox import NO_PRICE
from api.runs import store
from api.runs.errors import InvalidTransition
from api.runs.status import RunStatus
from api.runs.submit import _warnings
from api.runs.transitions import move
from api.tables import ProjectLimits, RunEvent
from tests import factories as make
from tests.worker.clusters import scripted
from tests.worker.clusters.scene import ClusterScene, cluster_spec
from tests.worker.scene import PROJECT
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


@pytest.mark.parametrize(
    ("budget", "project_usd", "whose"),
    [
        ({"usd": 1.0}, None, "run's"),
        ({"usd": 1.0}, 5.0, "run and the project's"),
        (None, 5.0, "project's"),
        ({"hours": 1.0}, None, None),
        (None, None, None),
    ],
)
def test_a_cluster_whose_price_nobody_knows_is_told_to_who_has_money_to_spend(
    far: ClusterScene,
    monkeypatch: pytest.MonkeyPatch,
    budget: dict[str, float] | None,
    project_usd: float | None,
    whose: str | None,
) -> None:
    monkeypatch.setattr(scripted, "FACTS", replace(scripted.FACTS, hourly_usd=None))
    if project_usd is not None:
        limits = ProjectLimits(
            project_id=PROJECT, max_clusters=8, usd=project_usd, since=far.now, set_by="t"
        )
        with far.parts.database.transaction() as session:
            budgets.set_limits(session, limits)
    run_id = far.submit(budget=budget)
    far.run_for(60)
    assert far.clusters(run_id)[0].state == "up"
    query = select(RunEvent.data).where(RunEvent.type == "run.warning")
    with far.parts.database.transaction() as session:
        told = [each for each in session.scalars(query) if each["code"] == NO_PRICE]
    assert len(told) == (whose is not None)
    assert all(f"in the USD of the {whose} budget" in each["message"] for each in told)


def test_a_cluster_with_a_price_is_nothing_to_warn_of(far: ClusterScene) -> None:
    run_id, _ = running(far, "first", usd=10.0)
    query = select(RunEvent.data).where(RunEvent.run_id == run_id, RunEvent.type == "run.warning")
    with far.parts.database.transaction() as session:
        assert NO_PRICE not in [each["code"] for each in session.scalars(query)]


def test_money_that_bounds_nothing_is_told_before_anything_is_rented() -> None:
    def told(**budget: float) -> list[str]:
        made = cluster_spec(budget=budget)
        return [each for each in _warnings(made) if "budget.usd" in each]

    assert told(usd=10.0) == [
        "budget.usd bounds nothing on slurm unless SkyPilot's settings name a price there:"
        " set budget.hours too."
    ]
    assert told(usd=10.0, hours=1.0) == []
    assert told(hours=1.0) == []


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


def test_resumes_of_one_ended_run_share_what_it_had_left(far: ClusterScene) -> None:
    run_id, plan = running(far, "first", usd=10.0)
    far.push(plan, make.saved(2, 1))
    far.report(plan, ReasonCode.SPEC_REJECTED, last_seq=2)
    far.run_for(120)
    first = far.resume(run_id)
    left = far.run(first).spec["budget"]["usd"]
    assert 8.0 < left < 10.0
    with pytest.raises(InvalidTransition, match="went to the runs that were resumed from it"):
        far.resume(run_id)
    far.run_for(30)
    far.enter(first)
    spend(far, first, 3.0)
    far.cancel(first)
    far.report(far.enter(first, nonce=f"{far.nonces:016d}"), ReasonCode.RUNNER_STOPPED)
    far.run_for(120)
    assert far.status(first) is S.CANCELLED
    second = far.resume(run_id)
    with far.parts.database.transaction() as session:
        spent = budgets.spent_by_run(session, first, now=far.now).usd
    assert spent >= 3.0
    assert far.run(second).spec["budget"]["usd"] == pytest.approx(left - spent)
    far.extend(run_id, usd=4.0)
    assert far.run(far.resume(run_id)).spec["budget"]["usd"] == pytest.approx(4.0)


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


def limit(far: ClusterScene, usd: float, since: datetime) -> None:
    limits = ProjectLimits(
        project_id=PROJECT, max_clusters=8, since=since, set_by="t", usd=usd, hours=None
    )
    with far.parts.database.transaction() as session:
        budgets.set_limits(session, limits)


def warned(far: ClusterScene, run_id: str) -> list[tuple[str, float]]:
    query = select(RunEvent.data).where(RunEvent.run_id == run_id)
    query = query.where(RunEvent.type == "budget.warned").order_by(RunEvent.seq)
    with far.parts.database.transaction() as session:
        return [(data["owner"], data["share"]) for data in session.scalars(query)]


def spend(far: ClusterScene, run_id: str, usd: float) -> None:
    """Let time pass until the run has cost so much."""
    while True:
        with far.parts.database.transaction() as session:
            if budgets.spent_by_run(session, run_id, now=far.now).usd >= usd:
                break
        far.clouds.pass_time(15.0)
        far.look_at_budgets()


def test_each_budget_of_a_run_is_warned_of_whichever_is_nearer_to_its_end(
    far: ClusterScene,
) -> None:
    limit(far, 3.0, far.now)
    run_id, _ = running(far, "first", usd=3.6)
    spend(far, run_id, 2.0)
    assert warned(far, run_id) == [("project", 0.5), ("run", 0.5)]
    spend(far, run_id, 2.6)
    assert warned(far, run_id)[2:] == [("project", 0.8)]
    assert far.status(run_id) is S.RUNNING


def test_a_projects_new_budget_is_warned_of_anew(far: ClusterScene) -> None:
    limit(far, 3.0, far.now)
    run_id, _ = running(far, "first", usd=100.0)
    spend(far, run_id, 2.5)
    assert warned(far, run_id) == [("project", 0.5), ("project", 0.8)]
    limit(far, 4.0, far.now)
    spend(far, run_id, 4.7)
    assert warned(far, run_id)[2:] == [("project", 0.5)]
    far.look_at_budgets()
    assert len(warned(far, run_id)) == 3
    limit(far, 4.0, far.now)
    spend(far, run_id, 6.9)
    assert warned(far, run_id)[3:] == [("project", 0.5)]


def test_an_extended_budget_is_warned_of_anew(far: ClusterScene) -> None:
    run_id, _ = running(far, "first", usd=3.0)
    spend(far, run_id, 1.6)
    far.extend(run_id, usd=1.0)
    spend(far, run_id, 2.1)
    assert warned(far, run_id) == [("run", 0.5), ("run", 0.5)]
