"""No API process is there: nothing is rented whose nodes could not get in, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.clusters.asking import SHUT_OUT, Later, may_ask
from api.runs import store
from api.runs.status import CLUSTER_PROVISIONING_S, RunStatus
from tests import factories as make
from tests.worker.clusters.scene import SKY, ClusterScene
from trainer.contract.reasons import ReasonCode
from worker import driver
from worker.clusters.base import JobState
from worker.clusters.decide import JOBS_EVERY, NODE_SILENT

S = RunStatus
EXCHANGE_S = 600.0
"""So long does a node ask for its plan (`HILLCLIMB_NODE_EXCHANGE_S`)."""


def answer(far: ClusterScene, run_id: str) -> object:
    with far.parts.database.transaction() as session:
        return may_ask(session, store.lock_run(session, run_id), now=far.now)


def until_its_job_has_given_up(far: ClusterScene, run_id: str) -> None:
    far.run_for(EXCHANGE_S, every_s=30.0)
    far.clouds.end_jobs(far.clusters(run_id)[-1].name, JobState.FAILED)


def test_nothing_is_rented_while_no_api_is_there(far: ClusterScene) -> None:
    far.api.goes()
    run_id = far.submit()
    far.run_for(3 * 3600, every_s=600.0)
    assert (far.status(run_id), far.clouds.num_launches) == (S.QUEUED, 0)
    why = "No API process is there for its nodes to ask for their plan."
    assert answer(far, run_id) == Later(why)
    far.api.comes()
    far.run_for(30)
    assert far.status(run_id) is S.PROVISIONING
    assert [each.state for each in far.clusters(run_id)] == ["up"]
    far.push(far.enter(run_id), make.started(1))
    assert far.status(run_id) is S.RUNNING


def test_nodes_that_do_not_ask_the_api_are_rented_without_it(far: ClusterScene) -> None:
    far.api.goes()
    sky = SKY | {"skypilot": SKY["skypilot"] | {"api_reachable": False}}
    run_id = far.submit(backend=sky)
    far.run_for(30)
    assert far.clouds.num_launches == 1
    until_its_job_has_given_up(far, run_id)
    assert far.clusters(run_id)[0].shut_out_at is None


def test_a_cluster_that_is_asked_for_is_not_launched_once_the_api_is_gone(
    far: ClusterScene,
) -> None:
    run_id = far.submit()
    driver.reconcile(far.parts, run_id, clock=far.clock)
    assert far.status(run_id) is S.PROVISIONING
    far.api.goes()
    far.run_for(2 * CLUSTER_PROVISIONING_S, every_s=600.0)
    [cluster] = far.clusters(run_id)
    assert (cluster.state, far.clouds.num_launches) == ("wanted", 0)
    assert cluster.waits_for is not None
    assert cluster.waits_for.startswith("no API process is there")
    far.api.comes()
    far.run_for(30)
    assert (far.clusters(run_id)[0].state, far.clouds.num_launches) == ("up", 1)


def test_a_run_that_is_cancelled_meanwhile_gives_its_place_back(far: ClusterScene) -> None:
    run_id = far.submit()
    driver.reconcile(far.parts, run_id, clock=far.clock)
    far.api.goes()
    far.run_for(30)
    far.cancel(run_id)
    far.run_for(30)
    assert (far.status(run_id), far.clusters(run_id)[0].state) == (S.CANCELLED, "gone")


def test_a_cluster_whose_node_found_nobody_uses_up_no_recovery(far: ClusterScene) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = far.submit(backend=sky)
    far.run_for(15)
    far.api.goes()
    until_its_job_has_given_up(far, run_id)
    far.run_for(120)
    [attempt] = far.attempts(run_id)
    assert attempt.end_code == "cluster_lost"
    assert attempt.end_message is not None
    assert "no API process was there" in attempt.end_message
    assert (far.status(run_id), far.clouds.num_launches) == (S.QUEUED, 1)
    far.api.comes()
    far.run_for(30)
    far.push(far.enter(run_id), make.started(1))
    assert (far.status(run_id), far.clouds.num_launches) == (S.RUNNING, 2)


def test_a_cluster_whose_time_to_come_up_ran_out_meanwhile_uses_up_none(far: ClusterScene) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = far.submit(backend=sky)
    far.run_for(15)
    far.api.goes()
    far.run_for(CLUSTER_PROVISIONING_S + 300, every_s=300.0)
    assert far.attempts(run_id)[0].end_code == "provision_timeout"
    far.api.comes()
    far.run_for(120)
    assert (far.status(run_id), len(far.attempts(run_id))) == (S.PROVISIONING, 2)


def test_a_node_that_gave_up_while_the_whole_service_was_away_uses_up_none(
    far: ClusterScene,
) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = far.submit(backend=sky)
    far.run_for(15)
    far.clouds.pass_time(EXCHANGE_S + 60)
    far.clouds.end_jobs(far.clusters(run_id)[0].name, JobState.FAILED)
    far.run_for(180)
    assert [each.end_code for each in far.attempts(run_id)] == ["cluster_lost", None]
    assert far.status(run_id) is S.PROVISIONING


@pytest.mark.parametrize("is_claimed", [True, False])
def test_a_cluster_that_is_lost_while_the_api_is_there_is_one(
    far: ClusterScene, *, is_claimed: bool
) -> None:
    """Also one whose node could have got in for longer than it takes to see its end."""
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = far.submit(backend=sky)
    far.run_for(15)
    far.api.goes()
    far.run_for(60)
    far.api.comes()
    assert far.clusters(run_id)[0].shut_out_at is not None
    if is_claimed:
        far.enter(run_id)
    else:
        far.run_for(SHUT_OUT.total_seconds(), every_s=30.0)
    far.clouds.end_jobs(far.clusters(run_id)[0].name, JobState.FAILED)
    far.run_for((NODE_SILENT + 3 * JOBS_EVERY).total_seconds(), every_s=30.0)
    assert far.attempts(run_id)[0].end_code == "cluster_lost"
    assert (far.run(run_id).end_code, far.status(run_id)) == ("cluster_lost", S.FAILED)


def test_a_node_whose_set_up_failed_meanwhile_was_not_kept_out(far: ClusterScene) -> None:
    sky = SKY | {"skypilot": SKY["skypilot"] | {"max_recoveries": 0}}
    run_id = far.submit(backend=sky)
    far.run_for(15)
    far.api.goes()
    far.clouds.end_jobs(far.clusters(run_id)[0].name, JobState.SETUP_FAILED)
    far.run_for(300)
    assert far.attempts(run_id)[0].end_code == ReasonCode.LAUNCH_FAILED
    assert far.status(run_id) is S.FAILED


def test_that_nobody_was_there_is_written_down_now_and_then_alone(far: ClusterScene) -> None:
    run_id = far.submit()
    far.run_for(15)
    far.api.goes()
    noted = set()
    for _ in range(20):
        far.step()
        noted.add(far.clusters(run_id)[0].shut_out_at)
        far.clouds.pass_time(3.0)
    assert len(noted) == 2
    assert max(noted) >= far.now - timedelta(seconds=60)
