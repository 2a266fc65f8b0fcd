"""What the clock's rounds do with many runs on clusters: put off what waits, send for the rest."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.clusters import budgets
from api.runs.deadlines import RECHECK_S
from api.runs.status import RunStatus
from api.scheduling.limits.spending import runs_to_watch
from api.tables import ProjectLimits, Run
from tests.fixtures import factories as make
from tests.worker.clusters.cluster_simulation import ClusterSimulation
from tests.worker.clusters.scripted import START
from tests.worker.run_simulation import PROJECT
from worker.clusters import observer, reconciler
from worker.runs import driver, sweeps

S = RunStatus


def limit_clusters(cluster_sim: ClusterSimulation, number: int, usd: float | None = None) -> None:
    limits = ProjectLimits(
        project_id=PROJECT, max_clusters=number, since=START, set_by="t", usd=usd, hours=None
    )
    with cluster_sim.context.database.transaction() as session:
        budgets.set_limits(session, limits)


def test_runs_far_back_in_the_queue_are_put_off_together(cluster_sim: ClusterSimulation) -> None:
    limit_clusters(cluster_sim, 1)
    first, second, third = (cluster_sim.submit(f"number {i}") for i in range(3))
    assert sweeps.runs(cluster_sim.context, now=cluster_sim.now) == [first]
    cluster_sim.run_for(15)
    assert [cluster_sim.status(each) for each in (first, second, third)] == [
        S.PROVISIONING,
        S.QUEUED,
        S.QUEUED,
    ]
    cluster_sim.clouds.pass_time(RECHECK_S)
    assert sweeps.runs(cluster_sim.context, now=cluster_sim.now) == []
    cluster_sim.cancel(first)
    cluster_sim.run_for(60)
    assert [cluster_sim.status(each) for each in (second, third)] == [S.PROVISIONING, S.QUEUED]


def test_a_run_that_waits_out_a_lack_of_capacity_is_in_nobodys_way(
    cluster_sim: ClusterSimulation,
) -> None:
    limit_clusters(cluster_sim, 1)
    cluster_sim.clouds.fails_launches = True
    unlucky = cluster_sim.submit("unlucky")
    cluster_sim.run_for(300, every_s=15.0)
    assert [c.state for c in cluster_sim.clusters(unlucky)] == ["terminated"] * len(
        cluster_sim.clusters(unlucky)
    )
    cluster_sim.clouds.fails_launches = False
    assert cluster_sim.run(unlucky).due_at > cluster_sim.now + timedelta(seconds=60)
    other = cluster_sim.submit("other")
    cluster_sim.run_for(30)
    assert cluster_sim.clusters(other)[0].state == "running"


def test_a_cluster_at_work_is_put_off_without_a_tick(cluster_sim: ClusterSimulation) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id)
    cluster_sim.run_for(15)
    epoch = cluster_sim.clusters(run_id)[0].epoch
    for _ in range(8):
        cluster_sim.run_for(15)
        cluster_sim.beat(plan)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, cluster.epoch) == ("running", epoch)
    assert cluster.due_at > cluster_sim.now


def test_what_a_cluster_waits_for_is_written_without_a_tick(cluster_sim: ClusterSimulation) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(20)
    [before] = cluster_sim.clusters(run_id)
    cluster_sim.clouds.broken.add(before.name)
    cluster_sim.clouds.pass_time(130)
    observer.sweep(cluster_sim.context, cluster_sim.clouds, now=cluster_sim.now)
    assert sweeps.clusters(cluster_sim.context, now=cluster_sim.now) == []
    [after] = cluster_sim.clusters(run_id)
    assert (after.state, after.epoch) == ("running", before.epoch)
    assert after.status_reason == "the cluster is not up: it may recover by itself"


def test_a_second_message_for_one_look_does_nothing(cluster_sim: ClusterSimulation) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.sweep()
    [cluster] = cluster_sim.clusters(run_id)
    asked = cluster_sim.clouds.num_launches
    assert not reconciler.reconcile(
        cluster_sim.context, cluster_sim.clouds, cluster.id, clock=cluster_sim.clock
    )
    assert not driver.reconcile(
        cluster_sim.context, run_id, must_be_due=True, clock=cluster_sim.clock
    )
    assert cluster_sim.clouds.num_launches == asked


def test_only_runs_that_are_near_a_budget_are_looked_at(cluster_sim: ClusterSimulation) -> None:
    cluster_sim.clouds.launch_s = 1.0
    poor = cluster_sim.submit("poor", budget={"usd": 5.0})
    rich = cluster_sim.submit("rich", budget={"usd": 5000.0})
    free = cluster_sim.submit("free")
    cluster_sim.run_for(15)

    def watched() -> set[str]:
        with cluster_sim.context.database.transaction() as session:
            shares = budgets.largest_shares(session, now=cluster_sim.now)
            for run_id in shares:
                told = budgets.allowances(
                    session, session.get_one(Run, run_id), now=cluster_sim.now
                )
                assert shares[run_id] == max(each.share for each in told)
            return set(runs_to_watch(session, now=cluster_sim.now))

    # $23.92 an hour: half of $5 is used after 6.3 minutes.
    assert watched() == set()
    cluster_sim.clouds.pass_time(400)
    assert watched() == {poor}
    limit_clusters(cluster_sim, 8, usd=5.0)
    cluster_sim.clouds.pass_time(100)
    assert watched() == {poor, rich, free}


def test_a_round_sends_for_no_more_than_are_done_by_the_next(
    cluster_sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "MAX_TASKS", 2)
    made = [cluster_sim.submit(f"number {i}") for i in range(3)]
    assert sweeps.runs(cluster_sim.context, now=cluster_sim.now) == made[:2]
    for run_id in made:
        driver.reconcile(cluster_sim.context, run_id, clock=cluster_sim.clock)
    names = [cluster_sim.clusters(run_id)[0].id for run_id in made]
    assert sweeps.clusters(cluster_sim.context, now=cluster_sim.now) == names[:2]


@pytest.mark.parametrize("has_started", [False, True])
def test_a_trainer_goes_on_after_an_outage_of_the_control_plane(
    cluster_sim: ClusterSimulation, has_started: bool
) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id)
    if has_started:
        cluster_sim.push(plan, make.started(1))
    cluster_sim.run_for(10)
    cluster_sim.clouds.pass_time(35 * 60.0)
    cluster_sim.sweep()
    assert cluster_sim.beat(plan) is None
    cluster_sim.push(plan, make.step(2, 1) if has_started else make.started(1))
    cluster_sim.run_for(30)
    assert (cluster_sim.status(run_id), cluster_sim.run(run_id).attempt) == (S.RUNNING, 1)
    assert cluster_sim.clouds.num_launches == 1
