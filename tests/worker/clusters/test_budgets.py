"""What one run's budget means for another, and for the run that goes on from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import select

from api.admission.submit import _warnings
from api.clusters import budgets
from api.runs import store
from api.runs.errors import InvalidTransition
from api.runs.outbox import NO_PRICE
from api.runs.status import RunStatus
from api.runs.transitions import move
from api.tables import ProjectLimits, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import LaunchPlan
from tests.fixtures import factories as make
from tests.worker.clusters import scripted
from tests.worker.clusters.cluster_simulation import ClusterSimulation, cluster_spec
from tests.worker.run_simulation import PROJECT

S = RunStatus


def running(cluster_sim: ClusterSimulation, name: str, usd: float) -> tuple[str, LaunchPlan]:
    run_id = cluster_sim.submit(name, budget={"usd": usd})
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id)
    cluster_sim.push(plan, make.started(1))
    return run_id, plan


def test_a_run_that_is_wrapped_up_over_its_budget_keeps_no_other_from_being_stopped(
    cluster_sim: ClusterSimulation,
) -> None:
    wrapped, _ = running(cluster_sim, "first", usd=1.0)
    with cluster_sim.context.database.transaction() as session:
        move(session, store.lock_run(session, wrapped), S.FINALIZING, now=cluster_sim.now)
    spends, plan = running(cluster_sim, "second", usd=1.0)
    for _ in range(10):
        cluster_sim.clouds.pass_time(30)
        cluster_sim.look_at_budgets()
    assert (cluster_sim.status(wrapped), cluster_sim.status(spends)) == (S.FINALIZING, S.PAUSING)
    assert cluster_sim.beat(plan) == "stop"


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
    cluster_sim: ClusterSimulation,
    monkeypatch: pytest.MonkeyPatch,
    budget: dict[str, float] | None,
    project_usd: float | None,
    whose: str | None,
) -> None:
    monkeypatch.setattr(scripted, "FACTS", replace(scripted.FACTS, hourly_usd=None))
    if project_usd is not None:
        limits = ProjectLimits(
            project_id=PROJECT, max_clusters=8, usd=project_usd, since=cluster_sim.now, set_by="t"
        )
        with cluster_sim.context.database.transaction() as session:
            budgets.set_limits(session, limits)
    run_id = cluster_sim.submit(budget=budget)
    cluster_sim.run_for(60)
    assert cluster_sim.clusters(run_id)[0].state == "running"
    query = select(RunEvent.data).where(RunEvent.type == "run.warning")
    with cluster_sim.context.database.transaction() as session:
        told = [each for each in session.scalars(query) if each["code"] == NO_PRICE]
    assert len(told) == (whose is not None)
    assert all(f"in the USD of the {whose} budget" in each["message"] for each in told)


def test_a_cluster_with_a_price_is_nothing_to_warn_of(cluster_sim: ClusterSimulation) -> None:
    run_id, _ = running(cluster_sim, "first", usd=10.0)
    query = select(RunEvent.data).where(RunEvent.run_id == run_id, RunEvent.type == "run.warning")
    with cluster_sim.context.database.transaction() as session:
        assert NO_PRICE not in [each["code"] for each in session.scalars(query)]


BOUNDS_NOTHING = (
    "budget.usd limits nothing on slurm unless SkyPilot's settings name a price there:"
    " set budget.hours too."
)


def test_a_plan_warns_of_money_that_bounds_nothing() -> None:
    def warnings(**budget: float) -> list[str]:
        return [each for each in _warnings(cluster_spec(budget=budget)) if "budget.usd" in each]

    assert warnings(usd=10.0) == [BOUNDS_NOTHING]
    assert warnings(usd=10.0, hours=1.0) == []
    assert warnings(hours=1.0) == []


def test_a_submission_warns_of_money_that_bounds_nothing(cluster_sim: ClusterSimulation) -> None:
    def warnings(**budget: float) -> list[str]:
        run_id = cluster_sim.submit(budget=budget)
        query = select(RunEvent.data).where(
            RunEvent.run_id == run_id, RunEvent.type == "run.warning"
        )
        with cluster_sim.context.database.transaction() as session:
            return [each["message"] for each in session.scalars(query) if each["code"] == "budget"]

    assert warnings(usd=10.0) == [BOUNDS_NOTHING]
    assert warnings(usd=10.0, hours=1.0) == []


def test_a_run_that_goes_on_from_one_that_ended_has_what_was_left_of_the_budget(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, plan = running(cluster_sim, "first", usd=10.0)
    cluster_sim.push(plan, make.saved(2, 1))
    cluster_sim.run_for(600, every_s=60.0)
    cluster_sim.report(plan, ReasonCode.SPEC_REJECTED, last_seq=2)
    cluster_sim.run_for(120)
    assert cluster_sim.status(run_id) is S.FAILED
    with cluster_sim.context.database.transaction() as session:
        spent = budgets.spent_by_run(session, run_id, now=cluster_sim.now).usd
    assert 3.0 < spent < 10.0
    next_id = cluster_sim.resume(run_id)
    assert next_id != run_id
    assert cluster_sim.run(next_id).spec["budget"]["usd"] == pytest.approx(10.0 - spent)


def test_resumes_of_one_ended_run_share_what_it_had_left(cluster_sim: ClusterSimulation) -> None:
    run_id, plan = running(cluster_sim, "first", usd=10.0)
    cluster_sim.push(plan, make.saved(2, 1))
    cluster_sim.report(plan, ReasonCode.SPEC_REJECTED, last_seq=2)
    cluster_sim.run_for(120)
    first = cluster_sim.resume(run_id)
    left = cluster_sim.run(first).spec["budget"]["usd"]
    assert 8.0 < left < 10.0
    with pytest.raises(InvalidTransition, match="the runs that were resumed from it"):
        cluster_sim.resume(run_id)
    cluster_sim.run_for(30)
    cluster_sim.enter(first)
    spend(cluster_sim, first, 3.0)
    cluster_sim.cancel(first)
    cluster_sim.report(
        cluster_sim.enter(first, nonce=f"{cluster_sim.nonces:016d}"), ReasonCode.RUNNER_STOPPED
    )
    cluster_sim.run_for(120)
    assert cluster_sim.status(first) is S.CANCELLED
    second = cluster_sim.resume(run_id)
    with cluster_sim.context.database.transaction() as session:
        spent = budgets.spent_by_run(session, first, now=cluster_sim.now).usd
    assert spent >= 3.0
    assert cluster_sim.run(second).spec["budget"]["usd"] == pytest.approx(left - spent)
    cluster_sim.extend(run_id, usd=4.0)
    assert cluster_sim.run(cluster_sim.resume(run_id)).spec["budget"]["usd"] == pytest.approx(4.0)


def test_a_run_that_ended_with_its_budget_used_up_does_not_go_on_before_it_is_extended(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, plan = running(cluster_sim, "first", usd=3.0)
    cluster_sim.push(plan, make.saved(2, 1))
    cluster_sim.clouds.pass_time(600)
    cluster_sim.report(plan, ReasonCode.SPEC_REJECTED, last_seq=2)
    cluster_sim.run_for(120)
    with pytest.raises(InvalidTransition, match="extend it"):
        cluster_sim.resume(run_id)
    cluster_sim.extend(run_id, usd=5.0)
    assert cluster_sim.run(cluster_sim.resume(run_id)).spec["budget"]["usd"] < 5.0


def limit(cluster_sim: ClusterSimulation, usd: float, since: datetime) -> None:
    limits = ProjectLimits(
        project_id=PROJECT, max_clusters=8, since=since, set_by="t", usd=usd, hours=None
    )
    with cluster_sim.context.database.transaction() as session:
        budgets.set_limits(session, limits)


def warned(cluster_sim: ClusterSimulation, run_id: str) -> list[tuple[str, float]]:
    query = select(RunEvent.data).where(RunEvent.run_id == run_id)
    query = query.where(RunEvent.type == "budget.warned").order_by(RunEvent.seq)
    with cluster_sim.context.database.transaction() as session:
        return [(data["owner"], data["share"]) for data in session.scalars(query)]


def spend(cluster_sim: ClusterSimulation, run_id: str, usd: float) -> None:
    """Let time pass until the run has cost so much."""
    while True:
        with cluster_sim.context.database.transaction() as session:
            if budgets.spent_by_run(session, run_id, now=cluster_sim.now).usd >= usd:
                break
        cluster_sim.clouds.pass_time(15.0)
        cluster_sim.look_at_budgets()


def test_each_budget_of_a_run_is_warned_of_whichever_is_nearer_to_its_end(
    cluster_sim: ClusterSimulation,
) -> None:
    limit(cluster_sim, 3.0, cluster_sim.now)
    run_id, _ = running(cluster_sim, "first", usd=3.6)
    spend(cluster_sim, run_id, 2.0)
    assert warned(cluster_sim, run_id) == [("project", 0.5), ("run", 0.5)]
    spend(cluster_sim, run_id, 2.6)
    assert warned(cluster_sim, run_id)[2:] == [("project", 0.8)]
    assert cluster_sim.status(run_id) is S.RUNNING


def test_a_projects_new_budget_is_warned_of_anew(cluster_sim: ClusterSimulation) -> None:
    limit(cluster_sim, 3.0, cluster_sim.now)
    run_id, _ = running(cluster_sim, "first", usd=100.0)
    spend(cluster_sim, run_id, 2.5)
    assert warned(cluster_sim, run_id) == [("project", 0.5), ("project", 0.8)]
    limit(cluster_sim, 4.0, cluster_sim.now)
    spend(cluster_sim, run_id, 4.7)
    assert warned(cluster_sim, run_id)[2:] == [("project", 0.5)]
    cluster_sim.look_at_budgets()
    assert len(warned(cluster_sim, run_id)) == 3
    limit(cluster_sim, 4.0, cluster_sim.now)
    spend(cluster_sim, run_id, 6.9)
    assert warned(cluster_sim, run_id)[3:] == [("project", 0.5)]


def test_an_extended_budget_is_warned_of_anew(cluster_sim: ClusterSimulation) -> None:
    run_id, _ = running(cluster_sim, "first", usd=3.0)
    spend(cluster_sim, run_id, 1.6)
    cluster_sim.extend(run_id, usd=1.0)
    spend(cluster_sim, run_id, 2.1)
    assert warned(cluster_sim, run_id) == [("run", 0.5), ("run", 0.5)]
