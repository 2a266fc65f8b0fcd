"""A service that could not end its clusters does not start."""

from __future__ import annotations

import pytest

from api.clusters.cloud_worker import CloudWorkerMissing, cloud_worker_warning, require_cloud_worker
from api.runs.deadlines import UNATTENDED_S
from api.runs.status import RunStatus
from hillclimb.protocol.end_reasons import ReasonCode
from tests.worker.clusters.cluster_simulation import ClusterSimulation
from tests.worker.run_simulation import PROJECT
from worker.runs import driver, sweeps


def test_live_clusters_need_somebody_who_can_end_them(cluster_sim: ClusterSimulation) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(30)
    [cluster] = cluster_sim.clusters(run_id)
    with cluster_sim.context.database.transaction() as session:
        require_cloud_worker(session, clouds="skypilot", abandon=False)
        require_cloud_worker(session, clouds="", abandon=True)
        with pytest.raises(CloudWorkerMissing, match=cluster.name):
            require_cloud_worker(session, clouds="", abandon=False)
    cluster_sim.cancel(run_id)
    cluster_sim.run_for(300)
    with cluster_sim.context.database.transaction() as session:
        require_cloud_worker(session, clouds="", abandon=False)


def nobody_asks_the_clouds(cluster_sim: ClusterSimulation, seconds: float) -> None:
    """The clock and the general worker go on; what they send to `clusters` stays there."""
    for _ in range(int(seconds / 5)):
        cluster_sim.clouds.pass_time(5.0)
        cluster_sim.look_at_budgets()
        for run_id in sweeps.runs(cluster_sim.context, now=cluster_sim.now):
            driver.reconcile(cluster_sim.context, run_id, must_be_due=True, clock=cluster_sim.clock)
        sweeps.clusters(cluster_sim.context, now=cluster_sim.now)


def warning(cluster_sim: ClusterSimulation, project_id: str | None = None) -> str | None:
    with cluster_sim.context.database.transaction() as session:
        return cloud_worker_warning(session, now=cluster_sim.now, project_id=project_id)


def test_a_cluster_that_nobody_rents_is_told_of_within_minutes(
    cluster_sim: ClusterSimulation,
) -> None:
    cluster_sim.submit()
    nobody_asks_the_clouds(cluster_sim, UNATTENDED_S)
    assert warning(cluster_sim) is None
    nobody_asks_the_clouds(cluster_sim, 60.0)
    told = warning(cluster_sim)
    assert told == warning(cluster_sim, PROJECT)
    assert told is not None
    assert told.startswith("No worker has checked 1 cluster for 5 min: no cluster is")
    assert "worker --queues clusters" in told
    assert warning(cluster_sim, "prj_other") is None
    cluster_sim.run_for(15)
    assert warning(cluster_sim) is None


def test_a_cluster_that_nobody_ends_is_told_of(cluster_sim: ClusterSimulation) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(30)
    plan = cluster_sim.enter(run_id)
    cluster_sim.cancel(run_id)
    cluster_sim.report(plan, ReasonCode.RUNNER_STOPPED)
    assert cluster_sim.status(run_id) is RunStatus.CANCELLED
    nobody_asks_the_clouds(cluster_sim, UNATTENDED_S + 60.0)
    assert cluster_sim.clusters(run_id)[0].state != "terminated"
    assert warning(cluster_sim) is not None
    cluster_sim.run_for(300)
    assert cluster_sim.clusters(run_id)[0].state == "terminated"
    assert warning(cluster_sim) is None
