"""Clusters whose clouds, jobs or reports keep the reconciler waiting."""

from __future__ import annotations

import pytest

from api.clusters.overview import status_message
from api.runs.status import RunStatus
from api.tables import OutboxMessage, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from tests.fixtures import factories as make
from tests.worker.clusters.cluster_simulation import SKY, ClusterSimulation

S = RunStatus


@pytest.mark.invariant("a launch has its time from each sign of it, while nobody answers")
def test_while_nobody_answers_a_run_waits_and_a_launch_has_its_time_from_each_sign(
    cluster_sim: ClusterSimulation,
) -> None:
    cluster_sim.clouds.is_away = True
    run_id = cluster_sim.submit()
    cluster_sim.run_for(3 * 3600, every_s=240.0)
    assert (cluster_sim.status(run_id), len(cluster_sim.attempts(run_id))) == (S.PROVISIONING, 1)
    cluster_sim.clouds.is_away, cluster_sim.clouds.launch_s = False, 6000.0
    cluster_sim.run_for(5900, every_s=120.0)
    assert (cluster_sim.status(run_id), len(cluster_sim.attempts(run_id))) == (S.PROVISIONING, 1)
    cluster_sim.run_for(240)
    assert cluster_sim.clusters(run_id)[-1].state == "running"


def test_a_job_that_is_stopped_unasked_is_a_lost_cluster(cluster_sim: ClusterSimulation) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 1}}
    run_id = cluster_sim.submit(backend=sky)
    for _ in range(2):
        cluster_sim.run_for(90)
        plan = cluster_sim.enter(run_id)
        cluster_sim.push(plan, make.started(1))
        cluster_sim.report(plan, ReasonCode.RUNNER_STOPPED)
    cluster_sim.run_for(120)
    assert (cluster_sim.status(run_id), cluster_sim.run(run_id).end_code) == (
        S.FAILED,
        "cluster_lost",
    )
    assert "max_recoveries is 1" in (cluster_sim.run(run_id).end_message or "")


def test_what_a_cluster_waits_for_is_told_while_it_waits(cluster_sim: ClusterSimulation) -> None:
    cluster_sim.clouds.is_away = True
    run_id = cluster_sim.submit()
    cluster_sim.run_for(15)
    [cluster] = cluster_sim.clusters(run_id)
    assert status_message(cluster) == "SkyPilot's API server does not answer: refused"
    cluster_sim.clouds.is_away = False
    cluster_sim.run_for(30)
    assert (
        status_message(cluster_sim.clusters(run_id)[0])
        == "an earlier launch request may still take effect"
    )
    cluster_sim.run_for(200, every_s=10.0)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, status_message(cluster)) == ("running", None)


def test_a_cluster_that_does_not_end_says_why_and_its_run_is_warned_once(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id = cluster_sim.submit(notify={"slack": {"channel": "C1"}})
    cluster_sim.run_for(30)
    of_the_spec = cluster_sim.types(run_id).count("run.warning")
    cluster_sim.clouds.refuses_ends = "AccessDenied: the key was revoked"
    cluster_sim.cancel(run_id)
    cluster_sim.run_for(560, every_s=20.0)
    [cluster] = cluster_sim.clusters(run_id)
    assert cluster.state == "terminating"
    assert "it still exists: AccessDenied: the key was revoked" in (status_message(cluster) or "")
    assert cluster_sim.types(run_id).count("run.warning") == of_the_spec
    cluster_sim.run_for(200, every_s=20.0)
    assert cluster_sim.types(run_id).count("run.warning") == of_the_spec + 1
    [message] = [each for each in cluster_sim.rows(OutboxMessage) if each.kind == "warning"]
    with cluster_sim.context.database.transaction() as session:
        event = session.get_one(RunEvent, (run_id, message.payload["seq"]))
    assert cluster.name in event.data["message"]
    assert "AccessDenied" in event.data["message"]
    cluster_sim.clouds.refuses_ends = None
    cluster_sim.run_for(180, every_s=20.0)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, status_message(cluster)) == ("terminated", "it is no longer needed")


def test_a_cluster_that_is_looked_at_once_in_a_while_goes_all_the_same(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.sweep()
    cluster_sim.run_for(60)
    assert [each.state for each in cluster_sim.clusters(run_id)] == ["running"]
    cluster_sim.cancel(run_id)
    cluster_sim.run_for(600, every_s=70)
    assert (cluster_sim.clouds.clusters, [c.state for c in cluster_sim.clusters(run_id)]) == (
        {},
        ["terminated"],
    )
