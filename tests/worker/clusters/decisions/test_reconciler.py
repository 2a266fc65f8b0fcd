"""A run on a cluster of its own, on the database: from the queue to a cluster that is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from api.clusters import cost
from api.clusters.overview import told
from api.runs.errors import AttemptSuperseded, InvalidTransition, UnknownToken
from api.runs.status import CLUSTER_STARTING_S, RunStatus
from api.tables import CloudExclusion, Offer, OutboxMessage, RunEvent, StrayCluster
from tests import factories as make
from tests.worker.clusters.scene import SKY, ClusterScene
from tests.worker.clusters.scripted import FACTS, ScriptedClouds
from trainer.contract.launch import AttemptEnd
from trainer.contract.node import NodeEnd
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import node_file, run_key
from worker import driver
from worker.clusters import observer
from worker.clusters.base import ErrorKind, JobSighting, JobState, OfferTried, Outcome
from worker.clusters.options import ClusterOptions
from worker.clusters.wheel import NoWheel

S = RunStatus


def running(far: ClusterScene) -> tuple[str, object]:
    run_id = far.submit()
    far.run_for(30)
    plan = far.enter(run_id)
    far.push(plan, make.started(1))
    assert far.status(run_id) is S.RUNNING
    return run_id, plan


def test_a_run_gets_a_cluster_trains_and_gives_it_back(far: ClusterScene) -> None:
    run_id = far.submit()
    far.sweep()
    assert far.status(run_id) is S.PROVISIONING
    far.run_for(15)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, far.clouds.num_launches) == ("up", 1)
    plan = far.enter(run_id)
    assert far.status(run_id) is S.STARTING
    far.push(plan, make.started(1), make.ended(2))
    far.report(plan, ReasonCode.COMPLETED, last_seq=2)
    assert far.status(run_id) is S.SUCCEEDED
    far.run_for(60)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, far.clouds.clusters) == ("gone", {})
    assert cluster.due_at is None


def test_a_trainer_that_loads_a_large_model_is_not_late_within_the_hour(far: ClusterScene) -> None:
    run_id = far.submit()
    far.run_for(15)
    plan = far.enter(run_id)
    for seconds in (CLUSTER_STARTING_S - 40, 30):
        far.clouds.pass_time(seconds)
        far.beat(plan)
        driver.reconcile(far.parts, run_id, clock=far.clock)
        assert far.beat(plan) is None
    far.clouds.pass_time(20)
    driver.reconcile(far.parts, run_id, clock=far.clock)
    assert far.beat(plan) == "kill"


class Killed(BaseException):
    """What `kill -9` is to a task."""


def test_a_launch_is_known_though_its_worker_dies_in_the_call_after_it(
    far: ClusterScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Killed

    run_id = far.submit()
    monkeypatch.setattr(type(far.clouds), "request", die)
    with pytest.raises(Killed):
        far.run_for(15)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, far.clouds.num_launches) == ("launching", 1)
    assert cluster.request_id is not None
    monkeypatch.undo()
    far.run_for(120)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, far.clouds.num_launches) == ("up", 1)


def test_a_job_that_asks_again_gets_a_new_token_and_another_job_is_sent_away(
    far: ClusterScene,
) -> None:
    run_id = far.submit()
    far.run_for(20)
    first = far.enter(run_id, nonce="1" * 16)
    again = far.enter(run_id, nonce="1" * 16)
    assert first.attempt_token != again.attempt_token
    with pytest.raises(UnknownToken):
        far.push(first, make.started(1))
    with pytest.raises(AttemptSuperseded, match="Another job"):
        far.enter(run_id, nonce="2" * 16)
    far.push(again, make.started(1))


def test_a_cluster_that_its_cloud_took_back_is_replaced_by_the_next_attempts(
    far: ClusterScene,
) -> None:
    run_id, plan = running(far)
    far.push(plan, make.saved(2, 1))
    [cluster] = far.clusters(run_id)
    far.clouds.preempt(cluster.name)
    far.run_for(240)
    first, second = far.clusters(run_id)
    assert (first.state, first.cause) == ("gone", "cluster_lost")
    assert second.state == "up"
    again = far.enter(run_id)
    assert (again.attempt, again.resume_from is not None) == (2, True)


def test_a_note_of_the_end_is_read_before_a_silent_node_is_given_up(far: ClusterScene) -> None:
    """The sweep over all notes may not have come to it: with many runs it takes minutes."""
    run_id = far.submit()
    far.run_for(30)
    plan = far.enter(run_id, nonce="1" * 16)
    far.push(plan, make.started(1))
    end = AttemptEnd(reason=ReasonCode.STORAGE_FULL, message="full", last_trainer_seq=1)
    key = run_key(run_id, node_file(1, "end"))
    note = NodeEnd(nonce="1" * 16, end=end)
    far.parts.store.put(key, note.model_dump_json().encode())
    [cluster] = far.clusters(run_id)
    far.clouds.end_jobs(cluster.name, JobState.SUCCEEDED)
    far.run_for(300)
    assert far.attempts(run_id)[0].end_code == "storage_full"
    assert far.clusters(run_id)[0].cause is None


def test_a_node_that_is_heard_while_its_job_is_asked_for_is_not_given_up(
    far: ClusterScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question takes up to 75 s, and its answer may be wrong."""
    run_id, plan = running(far)
    [cluster] = far.clusters(run_id)
    far.clouds.end_jobs(cluster.name, JobState.FAILED)
    asked = type(far.clouds).jobs

    def slowly(clouds: ScriptedClouds, name: str) -> tuple[JobSighting, ...] | None:
        clouds.pass_time(60)
        far.beat(plan)
        return asked(clouds, name)

    monkeypatch.setattr(type(far.clouds), "jobs", slowly)
    far.run_for(400)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, cluster.jobs_asked_at is None) == ("up", False)
    monkeypatch.undo()
    far.run_for(200)
    assert far.clusters(run_id)[0].cause == "job_ended"


def test_a_blip_of_the_clouds_is_not_held_against_a_node_that_was_heard_since(
    far: ClusterScene,
) -> None:
    run_id, plan = running(far)
    [cluster] = far.clusters(run_id)
    far.clouds.broken.add(cluster.name)
    far.look()
    assert far.clusters(run_id)[0].unsound_since is not None
    far.clouds.broken.clear()
    far.clouds.is_away = True
    far.clouds.pass_time(3600)
    far.beat(plan)
    far.run_for(180)
    assert far.clusters(run_id)[0].state == "up"
    far.clouds.is_away = False
    far.clouds.broken.add(cluster.name)
    far.run_for(240)
    assert far.clusters(run_id)[0].state == "up"
    far.run_for(120)
    assert far.clusters(run_id)[0].cause == "cluster_lost"


def test_a_cluster_that_is_not_up_is_kept_while_it_may_come_back(far: ClusterScene) -> None:
    """SkyPilot has a cluster as INIT for a while when its SSH did not answer once."""
    run_id, plan = running(far)
    [cluster] = far.clusters(run_id)
    far.clouds.pass_time(100)
    far.clouds.broken.add(cluster.name)
    far.run_for(200)
    assert far.clusters(run_id)[0].state == "up"
    far.clouds.broken.clear()
    far.beat(plan)
    far.run_for(60)
    far.clouds.broken.add(cluster.name)
    far.run_for(600)
    assert far.clusters(run_id)[0].cause == "cluster_lost"


def test_an_api_server_that_is_away_for_ten_minutes_changes_nothing(far: ClusterScene) -> None:
    run_id, plan = running(far)
    far.clouds.is_away = True
    for _ in range(40):
        far.run_for(15, every_s=15.0)
        far.beat(plan)
    assert far.status(run_id) is S.RUNNING
    far.clouds.is_away = False
    far.run_for(60)
    assert [c.state for c in far.clusters(run_id)] == ["up"]


@pytest.mark.parametrize("passed_s", [0.0, 5.0, 30.0])
def test_a_cancelled_run_leaves_no_cluster_however_far_it_had_got(
    far: ClusterScene, passed_s: float
) -> None:
    run_id = far.submit()
    far.sweep()
    far.run_for(passed_s)
    far.cancel(run_id)
    assert far.status(run_id) is S.CANCELLED
    far.run_for(300)
    assert (far.clouds.clusters, [c.state for c in far.clusters(run_id)]) == ({}, ["gone"])


def test_a_paused_run_gives_its_cluster_back_and_goes_on_with_another(far: ClusterScene) -> None:
    run_id, plan = running(far)
    far.pause(run_id)
    assert far.beat(plan) == "stop"
    far.push(plan, make.saved(2, 1), make.ended(3, ReasonCode.RUNNER_STOPPED))
    far.report(plan, ReasonCode.RUNNER_STOPPED, last_seq=3)
    assert far.status(run_id) is S.PAUSED
    far.run_for(60)
    assert far.clouds.clusters == {}
    far.resume(run_id)
    far.run_for(30)
    assert [c.state for c in far.clusters(run_id)] == ["gone", "up"]


def test_lack_of_capacity_is_waited_out_with_growing_pauses(far: ClusterScene) -> None:
    far.clouds.fails_launches = True
    run_id = far.submit()
    far.run_for(600)
    tries = len(far.clusters(run_id))
    assert 3 <= tries <= 6
    assert far.status(run_id) in (S.QUEUED, S.PROVISIONING)
    assert far.run(run_id).num_failures == 0
    far.clouds.fails_launches = False
    far.run_for(1000)
    assert far.clusters(run_id)[-1].state == "up"
    assert [c.state for c in far.clusters(run_id)[:-1]] == ["gone"] * (
        len(far.clusters(run_id)) - 1
    )


def test_a_cluster_with_our_tag_and_no_owner_is_ended_after_the_grace(far: ClusterScene) -> None:
    run_id, _ = running(far)
    [cluster] = far.clusters(run_id)
    stray = cluster.name[:-1] + "7"
    foreign = "hc-zzzz-somebody-1"
    for name in (stray, foreign):
        far.clouds.clusters[name] = type(far.clouds.clusters[cluster.name])(name)
    far.run_for(300, every_s=15.0)
    assert stray in far.clouds.clusters
    assert [row.name for row in far.rows(StrayCluster)] == [stray]
    far.run_for(600, every_s=15.0)
    assert stray not in far.clouds.clusters
    assert foreign in far.clouds.clusters
    assert far.rows(StrayCluster) == []


def test_a_stray_that_takes_its_time_to_go_is_told_once_a_minute(far: ClusterScene) -> None:
    run_id, _ = running(far)
    stray = far.clusters(run_id)[0].name[:-1] + "7"
    far.clouds.clusters[stray] = type(far.clouds.clusters[far.clusters(run_id)[0].name])(stray)
    far.clouds.refuses_ends = "not now"
    told = []
    observer.sweep(far.parts, far.clouds, now=far.now)
    far.clouds.pass_time(600)
    for _ in range(13):
        swept = observer.sweep(far.parts, far.clouds, now=far.now)
        assert swept is not None
        assert swept.strays == (stray,)
        told.append(len(swept.ended))
        far.clouds.pass_time(15)
    assert told == [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_what_was_tried_is_in_the_ledger_once_and_told(far: ClusterScene) -> None:
    far.clouds.fails_launches = True
    run_id = far.submit()
    far.run_for(20)
    told = far.types(run_id).count("cluster.offer")
    assert told == len(far.rows(Offer))


def test_an_offer_that_was_up_and_failed_then_is_a_failed_one_that_is_paid(
    far: ClusterScene,
) -> None:
    """Machines come up, SkyPilot's runtime cannot be set up on them, and nothing else is left."""
    far.clouds.fails_launches, far.clouds.launch_s = True, 60.0
    broken = OfferTried(infra="lambda", outcome=Outcome.FAILED, message="ssh: no route")
    far.clouds.tried = (broken,)
    run_id = far.submit()
    far.run_for(50)
    assert [(row.number, row.outcome) for row in far.rows(Offer)] == [(1, "up")]
    far.run_for(20)
    assert [(row.number, row.outcome, row.message) for row in far.rows(Offer)][:1] == [
        (1, "failed", "ssh: no route")
    ]
    assert far.clusters(run_id)[0].paid_from is not None
    assert [row.infra for row in far.rows(CloudExclusion)] == ["lambda"]


def test_a_run_whose_cluster_has_to_go_checkpoints_before_and_rests(far: ClusterScene) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_hours": 0.5}}
    run_id = far.submit(backend=sky)
    far.run_for(30)
    plan = far.enter(run_id)
    far.push(plan, make.started(1))
    [cluster] = far.clusters(run_id)
    while far.beat(plan) != "stop":
        far.run_for(30, every_s=15.0)
    assert timedelta(minutes=2) < cluster.wall_limit_at - far.now <= timedelta(minutes=3)
    far.report(plan, ReasonCode.RUNNER_STOPPED)
    assert (far.status(run_id), far.run(run_id).end_code) == (S.PAUSED, "cluster_time_up")
    far.run_for(60)
    assert far.clouds.clusters == {}


def test_a_price_that_was_told_is_not_forgotten_and_one_that_was_not_is_learnt(
    far: ClusterScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    priceless = replace(FACTS, hourly_usd=None)
    monkeypatch.setattr("tests.worker.clusters.scripted.FACTS", priceless)
    run_id, _ = running(far)
    assert far.clusters(run_id)[0].hourly_usd is None
    monkeypatch.setattr("tests.worker.clusters.scripted.FACTS", FACTS)
    far.run_for(30)
    assert far.clusters(run_id)[0].hourly_usd == FACTS.hourly_usd
    monkeypatch.setattr("tests.worker.clusters.scripted.FACTS", priceless)
    far.run_for(60)
    assert far.clusters(run_id)[0].hourly_usd == FACTS.hourly_usd


def test_a_run_that_has_trained_rests_where_its_next_machines_are_refused(
    far: ClusterScene,
) -> None:
    run_id, _ = running(far)
    far.clouds.fails_launches, far.clouds.refusal = True, ErrorKind.REFUSED
    far.clouds.preempt(far.clusters(run_id)[0].name)
    far.run_for(600, every_s=15.0)
    assert (far.status(run_id), far.run(run_id).end_code) == (S.PAUSED, "cluster_refused")


def test_machines_are_paid_while_they_are_set_up(far: ClusterScene) -> None:
    far.clouds.launch_s = 600.0
    run_id = far.submit()
    far.run_for(540)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, cluster.up_at) == ("launching", None)
    spent = cost.of_cluster(cluster, now=far.now)
    assert spent.usd == pytest.approx(23.92 * 240 / 3600, rel=0.1)
    far.cancel(run_id)
    far.run_for(240)
    [cluster] = far.clusters(run_id)
    assert cluster.state == "gone"
    assert cost.of_cluster(cluster, now=far.now).usd > spent.usd


def test_a_budget_is_warned_of_and_then_pauses_the_run(far: ClusterScene) -> None:
    run_id = far.submit(budget={"usd": 5.0})
    far.run_for(30)
    plan = far.enter(run_id)
    far.push(plan, make.started(1))
    # $23.92 an hour: all of it is used after 12.5 minutes.
    for _ in range(20):
        far.run_for(60, every_s=30.0)
        if far.beat(plan) == "stop":
            break
    assert far.types(run_id).count("budget.warned") == 2
    assert far.status(run_id) is S.PAUSING
    far.report(plan, ReasonCode.RUNNER_STOPPED)
    assert (far.status(run_id), far.run(run_id).end_code) == (S.PAUSED, "budget_exhausted")
    with pytest.raises(InvalidTransition, match=r"\$5.* of \$5.00"):
        far.resume(run_id)
    far.extend(run_id, usd=5.0)
    far.resume(run_id)
    assert far.status(run_id) is S.QUEUED


def test_a_launch_that_cannot_be_put_together_says_why_and_keeps_no_other_from_its_end(
    far: ClusterScene,
) -> None:
    run_id, _ = running(far)
    assert far.parts.renting is not None

    def broken() -> ClusterOptions:
        raise NoWheel("there is no wheel")

    far.parts = replace(far.parts, renting=replace(far.parts.renting, options=broken))
    far.cancel(run_id)
    waiting = far.submit("second")
    far.run_for(30)
    assert far.attempts(waiting)[0].end_code == "launch_failed"
    assert "there is no wheel" in (far.attempts(waiting)[0].end_message or "")
    far.run_for(1200, every_s=30.0)
    assert (far.clouds.clusters, far.clusters(run_id)[-1].state) == ({}, "gone")


def test_while_nobody_answers_a_run_waits_and_a_launch_has_its_time_from_each_sign(
    far: ClusterScene,
) -> None:
    far.clouds.is_away = True
    run_id = far.submit()
    far.run_for(3 * 3600, every_s=120.0)
    assert (far.status(run_id), len(far.attempts(run_id))) == (S.PROVISIONING, 1)
    far.clouds.is_away, far.clouds.launch_s = False, 6000.0
    far.run_for(5900, every_s=60.0)
    assert (far.status(run_id), len(far.attempts(run_id))) == (S.PROVISIONING, 1)
    far.run_for(240)
    assert far.clusters(run_id)[-1].state == "up"


def test_a_job_that_is_stopped_unasked_is_a_lost_cluster(far: ClusterScene) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 1}}
    run_id = far.submit(backend=sky)
    for _ in range(2):
        far.run_for(90)
        plan = far.enter(run_id)
        far.push(plan, make.started(1))
        far.report(plan, ReasonCode.RUNNER_STOPPED)
    far.run_for(120)
    assert (far.status(run_id), far.run(run_id).end_code) == (S.FAILED, "cluster_lost")
    assert "max_recoveries is 1" in (far.run(run_id).end_message or "")


def test_what_a_cluster_waits_for_is_told_while_it_waits(far: ClusterScene) -> None:
    far.clouds.is_away = True
    run_id = far.submit()
    far.run_for(15)
    [cluster] = far.clusters(run_id)
    assert told(cluster) == "the clouds' API server does not answer: refused"
    far.clouds.is_away = False
    far.run_for(30)
    assert told(far.clusters(run_id)[0]) == "a launch may still be on its way"
    far.run_for(200, every_s=10.0)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, told(cluster)) == ("up", None)


def test_a_cluster_that_does_not_end_says_why_and_its_run_is_warned_once(
    far: ClusterScene,
) -> None:
    run_id = far.submit(notify={"slack": {"channel": "C1"}})
    far.run_for(30)
    of_the_spec = far.types(run_id).count("run.warning")
    far.clouds.refuses_ends = "AccessDenied: the key was revoked"
    far.cancel(run_id)
    far.run_for(560, every_s=20.0)
    [cluster] = far.clusters(run_id)
    assert cluster.state == "ending"
    assert "it is still there: AccessDenied: the key was revoked" in (told(cluster) or "")
    assert far.types(run_id).count("run.warning") == of_the_spec
    far.run_for(200, every_s=20.0)
    assert far.types(run_id).count("run.warning") == of_the_spec + 1
    [message] = [each for each in far.rows(OutboxMessage) if each.kind == "warning"]
    with far.parts.database.transaction() as session:
        event = session.get_one(RunEvent, (run_id, message.payload["seq"]))
    assert cluster.name in event.data["message"]
    assert "AccessDenied" in event.data["message"]
    far.clouds.refuses_ends = None
    far.run_for(180, every_s=20.0)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, told(cluster)) == ("gone", "it is not wanted any more")


def test_a_cluster_that_is_looked_at_once_in_a_while_goes_all_the_same(far: ClusterScene) -> None:
    run_id = far.submit()
    far.sweep()
    far.run_for(60)
    assert [each.state for each in far.clusters(run_id)] == ["up"]
    far.cancel(run_id)
    far.run_for(600, every_s=70)
    assert (far.clouds.clusters, [c.state for c in far.clusters(run_id)]) == ({}, ["gone"])
