"""No API process is there: nothing is rented whose nodes could not get in, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.runs import store
from api.runs.deadlines import API_UNREACHABLE_GRACE, CLUSTER_PROVISIONING_S
from api.runs.status import RunStatus
from api.scheduling.provisioning import RetryLater, can_provision
from hillclimb.protocol.end_reasons import ReasonCode
from tests.fixtures import factories as make
from tests.worker.clusters.cluster_simulation import SKY, ClusterSimulation
from worker.deadlines import JOBS_POLL_INTERVAL, NODE_SILENCE
from worker.runs import driver
from worker.skypilot.port import JobState

S = RunStatus
EXCHANGE_S = 600.0
"""So long does a node ask for its plan (`HILLCLIMB_NODE_CLAIM_S`)."""


def answer(cluster_sim: ClusterSimulation, run_id: str) -> object:
    with cluster_sim.context.database.transaction() as session:
        return can_provision(session, store.lock_run(session, run_id), now=cluster_sim.now)


def until_its_job_has_given_up(cluster_sim: ClusterSimulation, run_id: str) -> None:
    cluster_sim.run_for(EXCHANGE_S, every_s=30.0)
    cluster_sim.clouds.end_jobs(cluster_sim.clusters(run_id)[-1].name, JobState.FAILED)


def test_nothing_is_rented_while_no_api_is_there(cluster_sim: ClusterSimulation) -> None:
    cluster_sim.api.goes()
    run_id = cluster_sim.submit()
    cluster_sim.run_for(3 * 3600, every_s=600.0)
    assert (cluster_sim.status(run_id), cluster_sim.clouds.num_launches) == (S.QUEUED, 0)
    why = "No API process is running that could send its nodes their plan."
    assert answer(cluster_sim, run_id) == RetryLater(why)
    cluster_sim.api.comes()
    cluster_sim.run_for(30)
    assert cluster_sim.status(run_id) is S.PROVISIONING
    assert [each.state for each in cluster_sim.clusters(run_id)] == ["running"]
    cluster_sim.push(cluster_sim.enter(run_id), make.started(1))
    assert cluster_sim.status(run_id) is S.RUNNING


def test_nodes_that_do_not_ask_the_api_are_rented_without_it(
    cluster_sim: ClusterSimulation,
) -> None:
    cluster_sim.api.goes()
    sky = SKY | {"skypilot": SKY["skypilot"] | {"api_reachable": False}}
    run_id = cluster_sim.submit(backend=sky)
    cluster_sim.run_for(30)
    assert cluster_sim.clouds.num_launches == 1
    until_its_job_has_given_up(cluster_sim, run_id)
    assert cluster_sim.clusters(run_id)[0].api_unreachable_at is None


def test_a_cluster_that_is_asked_for_is_not_launched_once_the_api_is_gone(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id = cluster_sim.submit()
    driver.reconcile(cluster_sim.context, run_id, clock=cluster_sim.clock)
    assert cluster_sim.status(run_id) is S.PROVISIONING
    cluster_sim.api.goes()
    cluster_sim.run_for(2 * CLUSTER_PROVISIONING_S, every_s=600.0)
    [cluster] = cluster_sim.clusters(run_id)
    assert (cluster.state, cluster_sim.clouds.num_launches) == ("pending", 0)
    assert cluster.status_reason is not None
    assert cluster.status_reason.startswith("no API process is alive")
    cluster_sim.api.comes()
    cluster_sim.run_for(30)
    assert (cluster_sim.clusters(run_id)[0].state, cluster_sim.clouds.num_launches) == (
        "running",
        1,
    )


def test_a_run_that_is_cancelled_meanwhile_gives_its_place_back(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id = cluster_sim.submit()
    driver.reconcile(cluster_sim.context, run_id, clock=cluster_sim.clock)
    cluster_sim.api.goes()
    cluster_sim.run_for(30)
    cluster_sim.cancel(run_id)
    cluster_sim.run_for(30)
    assert (cluster_sim.status(run_id), cluster_sim.clusters(run_id)[0].state) == (
        S.CANCELLED,
        "terminated",
    )


def test_a_cluster_whose_node_found_nobody_uses_up_no_recovery(
    cluster_sim: ClusterSimulation,
) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = cluster_sim.submit(backend=sky)
    cluster_sim.run_for(15)
    cluster_sim.api.goes()
    until_its_job_has_given_up(cluster_sim, run_id)
    cluster_sim.run_for(120)
    [attempt] = cluster_sim.attempts(run_id)
    assert attempt.end_code == "cluster_lost"
    assert attempt.end_message is not None
    assert "no API process was alive" in attempt.end_message
    assert (cluster_sim.status(run_id), cluster_sim.clouds.num_launches) == (S.QUEUED, 1)
    cluster_sim.api.comes()
    cluster_sim.run_for(30)
    cluster_sim.push(cluster_sim.enter(run_id), make.started(1))
    assert (cluster_sim.status(run_id), cluster_sim.clouds.num_launches) == (S.RUNNING, 2)


def test_a_cluster_whose_time_to_come_up_ran_out_meanwhile_uses_up_none(
    cluster_sim: ClusterSimulation,
) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = cluster_sim.submit(backend=sky)
    cluster_sim.run_for(15)
    cluster_sim.api.goes()
    cluster_sim.run_for(CLUSTER_PROVISIONING_S + 300, every_s=300.0)
    assert cluster_sim.attempts(run_id)[0].end_code == "provision_timeout"
    cluster_sim.api.comes()
    cluster_sim.run_for(120)
    assert (cluster_sim.status(run_id), len(cluster_sim.attempts(run_id))) == (S.PROVISIONING, 2)


def test_a_node_that_gave_up_while_the_whole_service_was_away_uses_up_none(
    cluster_sim: ClusterSimulation,
) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = cluster_sim.submit(backend=sky)
    cluster_sim.run_for(15)
    cluster_sim.clouds.pass_time(EXCHANGE_S + 60)
    cluster_sim.clouds.end_jobs(cluster_sim.clusters(run_id)[0].name, JobState.FAILED)
    cluster_sim.run_for(180)
    assert [each.end_code for each in cluster_sim.attempts(run_id)] == ["cluster_lost", None]
    assert cluster_sim.status(run_id) is S.PROVISIONING


@pytest.mark.parametrize("is_claimed", [True, False])
def test_a_cluster_that_is_lost_while_the_api_is_there_is_one(
    cluster_sim: ClusterSimulation, *, is_claimed: bool
) -> None:
    """Also one whose node could have got in for longer than it takes to see its end."""
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = cluster_sim.submit(backend=sky)
    cluster_sim.run_for(15)
    cluster_sim.api.goes()
    cluster_sim.run_for(60)
    cluster_sim.api.comes()
    assert cluster_sim.clusters(run_id)[0].api_unreachable_at is not None
    if is_claimed:
        cluster_sim.enter(run_id)
    else:
        cluster_sim.run_for(API_UNREACHABLE_GRACE.total_seconds(), every_s=30.0)
    cluster_sim.clouds.end_jobs(cluster_sim.clusters(run_id)[0].name, JobState.FAILED)
    cluster_sim.run_for((NODE_SILENCE + 3 * JOBS_POLL_INTERVAL).total_seconds(), every_s=30.0)
    assert cluster_sim.attempts(run_id)[0].end_code == "cluster_lost"
    assert (cluster_sim.run(run_id).end_code, cluster_sim.status(run_id)) == (
        "cluster_lost",
        S.FAILED,
    )


def test_a_node_whose_set_up_failed_meanwhile_was_not_kept_out(
    cluster_sim: ClusterSimulation,
) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = cluster_sim.submit(backend=sky)
    cluster_sim.run_for(15)
    cluster_sim.api.goes()
    cluster_sim.clouds.end_jobs(cluster_sim.clusters(run_id)[0].name, JobState.SETUP_FAILED)
    cluster_sim.run_for(300)
    assert cluster_sim.attempts(run_id)[0].end_code == ReasonCode.LAUNCH_FAILED
    assert cluster_sim.status(run_id) is S.FAILED


def test_that_nobody_was_there_is_written_down_now_and_then_alone(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(15)
    cluster_sim.api.goes()
    noted = set()
    for _ in range(20):
        cluster_sim.step()
        noted.add(cluster_sim.clusters(run_id)[0].api_unreachable_at)
        cluster_sim.clouds.pass_time(3.0)
    assert len(noted) == 2
    assert max(noted) >= cluster_sim.now - timedelta(seconds=60)
