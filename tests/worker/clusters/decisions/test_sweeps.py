"""What the clock's rounds do with many runs on clusters: put off what waits, send for the rest."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.clusters import budgets
from api.clusters.spending import runs_to_watch
from api.runs.status import LOOK_AGAIN_S, RunStatus
from api.tables import ProjectLimits, Run
from tests import factories as make
from tests.worker.clusters.scene import ClusterScene
from tests.worker.clusters.scripted import START
from tests.worker.scene import PROJECT
from worker import driver, rounds
from worker.clusters import observer, step

S = RunStatus


def limit_clusters(far: ClusterScene, number: int, usd: float | None = None) -> None:
    limits = ProjectLimits(
        project_id=PROJECT, max_clusters=number, since=START, set_by="t", usd=usd, hours=None
    )
    with far.parts.database.transaction() as session:
        budgets.set_limits(session, limits)


def test_runs_far_back_in_the_queue_are_put_off_together(far: ClusterScene) -> None:
    limit_clusters(far, 1)
    first, second, third = (far.submit(f"number {i}") for i in range(3))
    assert rounds.runs(far.parts, now=far.now) == [first]
    far.run_for(15)
    assert [far.status(each) for each in (first, second, third)] == [
        S.PROVISIONING,
        S.QUEUED,
        S.QUEUED,
    ]
    far.clouds.pass_time(LOOK_AGAIN_S)
    assert rounds.runs(far.parts, now=far.now) == []
    far.cancel(first)
    far.run_for(60)
    assert [far.status(each) for each in (second, third)] == [S.PROVISIONING, S.QUEUED]


def test_a_run_that_waits_out_a_lack_of_capacity_is_in_nobodys_way(far: ClusterScene) -> None:
    limit_clusters(far, 1)
    far.clouds.fails_launches = True
    unlucky = far.submit("unlucky")
    far.run_for(300)
    assert [c.state for c in far.clusters(unlucky)] == ["gone"] * len(far.clusters(unlucky))
    far.clouds.fails_launches = False
    assert far.run(unlucky).due_at > far.now + timedelta(seconds=60)
    other = far.submit("other")
    far.run_for(30)
    assert far.clusters(other)[0].state == "up"


def test_a_cluster_at_work_is_put_off_without_a_tick(far: ClusterScene) -> None:
    run_id = far.submit()
    far.run_for(30)
    plan = far.enter(run_id)
    far.run_for(15)
    epoch = far.clusters(run_id)[0].epoch
    for _ in range(8):
        far.run_for(15)
        far.beat(plan)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, cluster.epoch) == ("up", epoch)
    assert cluster.due_at > far.now


def test_what_a_cluster_waits_for_is_written_without_a_tick(far: ClusterScene) -> None:
    run_id = far.submit()
    far.run_for(20)
    [before] = far.clusters(run_id)
    far.clouds.broken.add(before.name)
    far.clouds.pass_time(130)
    observer.sweep(far.parts, far.clouds, now=far.now)
    assert rounds.clusters(far.parts, now=far.now) == []
    [after] = far.clusters(run_id)
    assert (after.state, after.epoch) == ("up", before.epoch)
    assert after.waits_for == "the cluster is not up: it may come back"


def test_a_second_message_for_one_look_does_nothing(far: ClusterScene) -> None:
    run_id = far.submit()
    far.sweep()
    [cluster] = far.clusters(run_id)
    asked = far.clouds.num_launches
    assert not step.reconcile(far.parts, far.clouds, cluster.id, clock=far.clock)
    assert not driver.reconcile(far.parts, run_id, must_be_due=True, clock=far.clock)
    assert far.clouds.num_launches == asked


def test_only_runs_that_are_near_a_budget_are_looked_at(far: ClusterScene) -> None:
    far.clouds.launch_s = 1.0
    poor = far.submit("poor", budget={"usd": 5.0})
    rich = far.submit("rich", budget={"usd": 5000.0})
    free = far.submit("free")
    far.run_for(15)

    def watched() -> set[str]:
        with far.parts.database.transaction() as session:
            shares = budgets.largest_shares(session, now=far.now)
            for run_id in shares:
                told = budgets.allowances(session, session.get_one(Run, run_id), now=far.now)
                assert shares[run_id] == max(each.share for each in told)
            return set(runs_to_watch(session, now=far.now))

    # $23.92 an hour: half of $5 is used after 6.3 minutes.
    assert watched() == set()
    far.clouds.pass_time(400)
    assert watched() == {poor}
    limit_clusters(far, 8, usd=5.0)
    far.clouds.pass_time(100)
    assert watched() == {poor, rich, free}


def test_a_round_sends_for_no_more_than_are_done_by_the_next(
    far: ClusterScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SENT_AT_ONCE", 2)
    made = [far.submit(f"number {i}") for i in range(3)]
    assert rounds.runs(far.parts, now=far.now) == made[:2]
    for run_id in made:
        driver.reconcile(far.parts, run_id, clock=far.clock)
    names = [far.clusters(run_id)[0].id for run_id in made]
    assert rounds.clusters(far.parts, now=far.now) == names[:2]


@pytest.mark.parametrize("has_started", [False, True])
def test_a_trainer_goes_on_after_an_outage_of_the_control_plane(
    far: ClusterScene, has_started: bool
) -> None:
    run_id = far.submit()
    far.run_for(30)
    plan = far.enter(run_id)
    if has_started:
        far.push(plan, make.started(1))
    far.run_for(10)
    far.clouds.pass_time(35 * 60.0)
    far.sweep()
    assert far.beat(plan) is None
    far.push(plan, make.step(2, 1) if has_started else make.started(1))
    far.run_for(30)
    assert (far.status(run_id), far.run(run_id).attempt) == (S.RUNNING, 1)
    assert far.clouds.num_launches == 1
