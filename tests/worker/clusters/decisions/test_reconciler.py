"""A run on a cluster of its own, on the database: from the queue to a cluster that is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from api.clusters import cost
from api.runs.deadlines import CLUSTER_STARTING_S
from api.runs.errors import AttemptSuperseded, InvalidTransition, UnknownToken
from api.runs.status import RunStatus
from api.tables import CloudExclusion, LaunchTry, OrphanedCluster
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import EndReport
from hillclimb.protocol.node_messages import NodeEnd
from hillclimb.protocol.rundir import node_file, run_key
from tests.fixtures import factories as make
from tests.worker.clusters.cluster_simulation import SKY, ClusterSimulation
from tests.worker.clusters.scripted import FACTS, ScriptedClouds
from worker.clusters import observer
from worker.runs import driver
from worker.skypilot.options import ClusterOptions
from worker.skypilot.port import CloudJob, ErrorKind, JobState, OfferOutcome, TriedOffer
from worker.skypilot.wheel import NoWheel

S = RunStatus


def running(cluster_sim: ClusterSimulation) -> tuple[str, object]:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id)
    cluster_sim.push(plan, make.started(1))
    assert cluster_sim.status(run_id) is S.RUNNING
    return run_id, plan


def test_a_run_gets_a_cluster_trains_and_gives_it_back(cluster_sim: ClusterSimulation) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.sweep()
    assert cluster_sim.status(run_id) is S.PROVISIONING
    cluster_sim.run_for(15)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, cluster_sim.clouds.num_launches) == ("running", 1)
    plan = cluster_sim.enter(run_id)
    assert cluster_sim.status(run_id) is S.STARTING
    cluster_sim.push(plan, make.started(1), make.ended(2))
    cluster_sim.report(plan, ReasonCode.COMPLETED, last_seq=2)
    assert cluster_sim.status(run_id) is S.SUCCEEDED
    cluster_sim.run_for(60)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, cluster_sim.clouds.clusters) == ("terminated", {})
    assert cluster.due_at is None


def test_a_trainer_that_loads_a_large_model_is_not_late_within_the_hour(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(15)
    plan = cluster_sim.enter(run_id)
    for seconds in (CLUSTER_STARTING_S - 40, 30):
        cluster_sim.clouds.pass_time(seconds)
        cluster_sim.beat(plan)
        cluster_sim.mark_sweep()
        driver.reconcile(cluster_sim.context, run_id, clock=cluster_sim.clock)
        assert cluster_sim.beat(plan) is None
    cluster_sim.clouds.pass_time(20)
    cluster_sim.mark_sweep()
    driver.reconcile(cluster_sim.context, run_id, clock=cluster_sim.clock)
    assert cluster_sim.beat(plan) == "kill"


class Killed(BaseException):
    """What `kill -9` is to a task."""


def test_a_launch_is_known_though_its_worker_dies_in_the_call_after_it(
    cluster_sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Killed

    run_id = cluster_sim.submit()
    monkeypatch.setattr(type(cluster_sim.clouds), "get_launch", die)
    with pytest.raises(Killed):
        cluster_sim.run_for(15)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, cluster_sim.clouds.num_launches) == ("provisioning", 1)
    assert cluster.request_id is not None
    monkeypatch.undo()
    cluster_sim.run_for(120)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, cluster_sim.clouds.num_launches) == ("running", 1)


def test_a_job_that_asks_again_gets_a_new_token_and_another_job_is_sent_away(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(20)
    first = cluster_sim.enter(run_id, nonce="1" * 16)
    again = cluster_sim.enter(run_id, nonce="1" * 16)
    assert first.attempt_token != again.attempt_token
    with pytest.raises(UnknownToken):
        cluster_sim.push(first, make.started(1))
    with pytest.raises(AttemptSuperseded, match="Another job"):
        cluster_sim.enter(run_id, nonce="2" * 16)
    cluster_sim.push(again, make.started(1))


def test_a_cluster_that_its_cloud_took_back_is_replaced_by_the_next_attempts(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, plan = running(cluster_sim)
    cluster_sim.push(plan, make.saved(2, 1))
    [cluster] = cluster_sim.clusters(run_id)
    cluster_sim.clouds.preempt(cluster.name)
    cluster_sim.run_for(240)
    first, second = cluster_sim.clusters(run_id)
    assert (first.state, first.cause) == ("terminated", "cluster_lost")
    assert second.state == "running"
    again = cluster_sim.enter(run_id)
    assert (again.attempt, again.resume_from is not None) == (2, True)


def test_a_note_of_the_end_is_read_before_a_silent_node_is_given_up(
    cluster_sim: ClusterSimulation,
) -> None:
    """The sweep over all notes may not have come to it: with many runs it takes minutes."""
    run_id = cluster_sim.submit()
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id, nonce="1" * 16)
    cluster_sim.push(plan, make.started(1))
    end = EndReport(reason=ReasonCode.STORAGE_FULL, message="full", last_trainer_seq=1)
    key = run_key(run_id, node_file(1, "end"))
    note = NodeEnd(nonce="1" * 16, end=end)
    cluster_sim.context.store.put(key, note.model_dump_json().encode())
    [cluster] = cluster_sim.clusters(run_id)
    cluster_sim.clouds.end_jobs(cluster.name, JobState.SUCCEEDED)
    cluster_sim.run_for(300)
    assert cluster_sim.attempts(run_id)[0].end_code == "storage_full"
    assert cluster_sim.clusters(run_id)[0].cause is None


def test_a_node_that_is_heard_while_its_job_is_asked_for_is_not_given_up(
    cluster_sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question takes up to 75 s, and its answer may be wrong."""
    run_id, plan = running(cluster_sim)
    [cluster] = cluster_sim.clusters(run_id)
    cluster_sim.clouds.end_jobs(cluster.name, JobState.FAILED)
    asked = type(cluster_sim.clouds).list_jobs

    def slowly(clouds: ScriptedClouds, name: str) -> tuple[CloudJob, ...] | None:
        clouds.pass_time(60)
        cluster_sim.beat(plan)
        return asked(clouds, name)

    monkeypatch.setattr(type(cluster_sim.clouds), "list_jobs", slowly)
    cluster_sim.run_for(400)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, cluster.jobs_requested_at is None) == ("running", False)
    monkeypatch.undo()
    cluster_sim.run_for(200)
    assert cluster_sim.clusters(run_id)[0].cause == "job_ended"


def test_a_blip_of_the_clouds_is_not_held_against_a_node_that_was_heard_since(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, plan = running(cluster_sim)
    [cluster] = cluster_sim.clusters(run_id)
    cluster_sim.clouds.broken.add(cluster.name)
    cluster_sim.look()
    assert cluster_sim.clusters(run_id)[0].unhealthy_since is not None
    cluster_sim.clouds.broken.clear()
    cluster_sim.clouds.is_away = True
    cluster_sim.clouds.pass_time(3600)
    cluster_sim.beat(plan)
    cluster_sim.run_for(180)
    assert cluster_sim.clusters(run_id)[0].state == "running"
    cluster_sim.clouds.is_away = False
    cluster_sim.clouds.broken.add(cluster.name)
    cluster_sim.run_for(240)
    assert cluster_sim.clusters(run_id)[0].state == "running"
    cluster_sim.run_for(120)
    assert cluster_sim.clusters(run_id)[0].cause == "cluster_lost"


@pytest.mark.invariant("a cluster that may come back is not terminated")
def test_a_cluster_that_is_not_up_is_kept_while_it_may_come_back(
    cluster_sim: ClusterSimulation,
) -> None:
    """SkyPilot has a cluster as INIT for a while when its SSH did not answer once."""
    run_id, plan = running(cluster_sim)
    [cluster] = cluster_sim.clusters(run_id)
    cluster_sim.clouds.pass_time(100)
    cluster_sim.clouds.broken.add(cluster.name)
    cluster_sim.run_for(200)
    assert cluster_sim.clusters(run_id)[0].state == "running"
    cluster_sim.clouds.broken.clear()
    cluster_sim.beat(plan)
    cluster_sim.run_for(60)
    cluster_sim.clouds.broken.add(cluster.name)
    cluster_sim.run_for(600)
    assert cluster_sim.clusters(run_id)[0].cause == "cluster_lost"


def test_an_api_server_that_is_away_for_ten_minutes_changes_nothing(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, plan = running(cluster_sim)
    cluster_sim.clouds.is_away = True
    for _ in range(20):
        cluster_sim.run_for(30, every_s=30.0)
        cluster_sim.beat(plan)
    assert cluster_sim.status(run_id) is S.RUNNING
    cluster_sim.clouds.is_away = False
    cluster_sim.run_for(60)
    assert [c.state for c in cluster_sim.clusters(run_id)] == ["running"]


@pytest.mark.parametrize("passed_s", [0.0, 5.0, 30.0])
def test_a_cancelled_run_leaves_no_cluster_however_far_it_had_got(
    cluster_sim: ClusterSimulation, passed_s: float
) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.sweep()
    cluster_sim.run_for(passed_s)
    cluster_sim.cancel(run_id)
    assert cluster_sim.status(run_id) is S.CANCELLED
    cluster_sim.run_for(300)
    assert (cluster_sim.clouds.clusters, [c.state for c in cluster_sim.clusters(run_id)]) == (
        {},
        ["terminated"],
    )


def test_a_paused_run_gives_its_cluster_back_and_goes_on_with_another(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, plan = running(cluster_sim)
    cluster_sim.pause(run_id)
    assert cluster_sim.beat(plan) == "stop"
    cluster_sim.push(plan, make.saved(2, 1), make.ended(3, ReasonCode.RUNNER_STOPPED))
    cluster_sim.report(plan, ReasonCode.RUNNER_STOPPED, last_seq=3)
    assert cluster_sim.status(run_id) is S.PAUSED
    cluster_sim.run_for(60)
    assert cluster_sim.clouds.clusters == {}
    cluster_sim.resume(run_id)
    cluster_sim.run_for(30)
    assert [c.state for c in cluster_sim.clusters(run_id)] == ["terminated", "running"]


def test_lack_of_capacity_is_waited_out_with_growing_pauses(cluster_sim: ClusterSimulation) -> None:
    cluster_sim.clouds.fails_launches = True
    run_id = cluster_sim.submit()
    cluster_sim.run_for(600)
    tries = len(cluster_sim.clusters(run_id))
    assert 3 <= tries <= 6
    assert cluster_sim.status(run_id) in (S.QUEUED, S.PROVISIONING)
    assert cluster_sim.run(run_id).num_failures == 0
    cluster_sim.clouds.fails_launches = False
    cluster_sim.run_for(1000)
    assert cluster_sim.clusters(run_id)[-1].state == "running"
    assert [c.state for c in cluster_sim.clusters(run_id)[:-1]] == ["terminated"] * (
        len(cluster_sim.clusters(run_id)) - 1
    )


def test_a_cluster_with_our_tag_and_no_owner_is_ended_after_the_grace(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, _ = running(cluster_sim)
    [cluster] = cluster_sim.clusters(run_id)
    orphan = cluster.name[:-1] + "7"
    foreign = "hc-zzzz-somebody-1"
    for name in (orphan, foreign):
        cluster_sim.clouds.clusters[name] = type(cluster_sim.clouds.clusters[cluster.name])(name)
    cluster_sim.run_for(300)
    assert orphan in cluster_sim.clouds.clusters
    assert [row.name for row in cluster_sim.rows(OrphanedCluster)] == [orphan]
    cluster_sim.run_for(600)
    assert orphan not in cluster_sim.clouds.clusters
    assert foreign in cluster_sim.clouds.clusters
    assert cluster_sim.rows(OrphanedCluster) == []


def test_a_stray_that_takes_its_time_to_go_is_told_once_a_minute(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, _ = running(cluster_sim)
    orphan = cluster_sim.clusters(run_id)[0].name[:-1] + "7"
    cluster_sim.clouds.clusters[orphan] = type(
        cluster_sim.clouds.clusters[cluster_sim.clusters(run_id)[0].name]
    )(orphan)
    cluster_sim.clouds.refuses_ends = "not now"
    status_message = []
    observer.sweep(cluster_sim.context, cluster_sim.clouds, now=cluster_sim.now)
    cluster_sim.clouds.pass_time(600)
    for _ in range(13):
        swept = observer.sweep(cluster_sim.context, cluster_sim.clouds, now=cluster_sim.now)
        assert swept is not None
        assert swept.orphans == (orphan,)
        status_message.append(len(swept.terminated))
        cluster_sim.clouds.pass_time(15)
    assert status_message == [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_what_was_tried_is_in_the_ledger_once_and_told(cluster_sim: ClusterSimulation) -> None:
    cluster_sim.clouds.fails_launches = True
    run_id = cluster_sim.submit()
    cluster_sim.run_for(20)
    status_message = cluster_sim.types(run_id).count("cluster.offer_tried")
    assert status_message == len(cluster_sim.rows(LaunchTry))


def test_an_offer_that_was_up_and_failed_then_is_a_failed_one_that_is_paid(
    cluster_sim: ClusterSimulation,
) -> None:
    """Machines come up, SkyPilot's runtime cannot be set up on them, and nothing else is left."""
    cluster_sim.clouds.fails_launches, cluster_sim.clouds.launch_s = True, 60.0
    broken = TriedOffer(infra="lambda", outcome=OfferOutcome.FAILED, message="ssh: no route")
    cluster_sim.clouds.tried = (broken,)
    run_id = cluster_sim.submit()
    cluster_sim.run_for(50)
    assert [(row.number, row.outcome) for row in cluster_sim.rows(LaunchTry)] == [(1, "up")]
    cluster_sim.run_for(20)
    assert [(row.number, row.outcome, row.message) for row in cluster_sim.rows(LaunchTry)][:1] == [
        (1, "failed", "ssh: no route")
    ]
    assert cluster_sim.clusters(run_id)[0].billed_from is not None
    assert [row.infra for row in cluster_sim.rows(CloudExclusion)] == ["lambda"]


@pytest.mark.invariant("a run saves a checkpoint before its cluster is terminated")
def test_a_run_whose_cluster_has_to_go_checkpoints_before_and_rests(
    cluster_sim: ClusterSimulation,
) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_hours": 0.5}}
    run_id = cluster_sim.submit(backend=sky)
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id)
    cluster_sim.push(plan, make.started(1))
    [cluster] = cluster_sim.clusters(run_id)
    while cluster_sim.beat(plan) != "stop":
        cluster_sim.run_for(60, every_s=30.0)
    assert timedelta(minutes=2) < cluster.wall_limit_at - cluster_sim.now <= timedelta(minutes=3)
    cluster_sim.report(plan, ReasonCode.RUNNER_STOPPED)
    assert (cluster_sim.status(run_id), cluster_sim.run(run_id).end_code) == (
        S.PAUSED,
        "cluster_time_up",
    )
    cluster_sim.run_for(60)
    assert cluster_sim.clouds.clusters == {}


def test_a_price_that_was_told_is_not_forgotten_and_one_that_was_not_is_learnt(
    cluster_sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    priceless = replace(FACTS, hourly_usd=None)
    monkeypatch.setattr("tests.worker.clusters.scripted.FACTS", priceless)
    run_id, _ = running(cluster_sim)
    assert cluster_sim.clusters(run_id)[0].hourly_usd is None
    monkeypatch.setattr("tests.worker.clusters.scripted.FACTS", FACTS)
    cluster_sim.run_for(30)
    assert cluster_sim.clusters(run_id)[0].hourly_usd == FACTS.hourly_usd
    monkeypatch.setattr("tests.worker.clusters.scripted.FACTS", priceless)
    cluster_sim.run_for(60)
    assert cluster_sim.clusters(run_id)[0].hourly_usd == FACTS.hourly_usd


def test_a_run_that_has_trained_rests_where_its_next_machines_are_refused(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, _ = running(cluster_sim)
    cluster_sim.clouds.fails_launches, cluster_sim.clouds.refusal = True, ErrorKind.REFUSED
    cluster_sim.clouds.preempt(cluster_sim.clusters(run_id)[0].name)
    cluster_sim.run_for(600)
    assert (cluster_sim.status(run_id), cluster_sim.run(run_id).end_code) == (
        S.PAUSED,
        "cluster_refused",
    )


def test_machines_are_paid_while_they_are_set_up(cluster_sim: ClusterSimulation) -> None:
    cluster_sim.clouds.launch_s = 600.0
    run_id = cluster_sim.submit()
    cluster_sim.run_for(540)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, cluster.running_at) == ("provisioning", None)
    spent = cost.of_cluster(cluster, now=cluster_sim.now)
    assert spent.usd == pytest.approx(23.92 * 240 / 3600, rel=0.1)
    cluster_sim.cancel(run_id)
    cluster_sim.run_for(240)
    [cluster] = cluster_sim.clusters(run_id)
    assert cluster.state == "terminated"
    assert cost.of_cluster(cluster, now=cluster_sim.now).usd > spent.usd


def test_a_budget_is_warned_of_and_then_pauses_the_run(cluster_sim: ClusterSimulation) -> None:
    run_id = cluster_sim.submit(budget={"usd": 5.0})
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id)
    cluster_sim.push(plan, make.started(1))
    # $23.92 an hour: all of it is used after 12.5 minutes.
    for _ in range(20):
        cluster_sim.run_for(60, every_s=30.0)
        if cluster_sim.beat(plan) == "stop":
            break
    assert cluster_sim.types(run_id).count("budget.warned") == 2
    assert cluster_sim.status(run_id) is S.PAUSING
    cluster_sim.report(plan, ReasonCode.RUNNER_STOPPED)
    assert (cluster_sim.status(run_id), cluster_sim.run(run_id).end_code) == (
        S.PAUSED,
        "budget_exhausted",
    )
    with pytest.raises(InvalidTransition, match=r"\$5.* of \$5.00"):
        cluster_sim.resume(run_id)
    cluster_sim.extend(run_id, usd=5.0)
    cluster_sim.resume(run_id)
    assert cluster_sim.status(run_id) is S.QUEUED


def test_a_launch_that_cannot_be_put_together_says_why_and_keeps_no_other_from_its_end(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id, _ = running(cluster_sim)
    assert cluster_sim.context.cloud_provider is not None

    def broken() -> ClusterOptions:
        raise NoWheel("there is no wheel")

    cluster_sim.context = replace(
        cluster_sim.context,
        cloud_provider=replace(cluster_sim.context.cloud_provider, options=broken),
    )
    cluster_sim.cancel(run_id)
    waiting = cluster_sim.submit("second")
    cluster_sim.run_for(30)
    assert cluster_sim.attempts(waiting)[0].end_code == "launch_failed"
    assert "there is no wheel" in (cluster_sim.attempts(waiting)[0].end_message or "")
    cluster_sim.run_for(1200, every_s=30.0)
    assert (cluster_sim.clouds.clusters, cluster_sim.clusters(run_id)[-1].state) == (
        {},
        "terminated",
    )
