"""A service that could not end its clusters does not start."""

from __future__ import annotations

import pytest

from api.clusters.attendance import (
    UNATTENDED_S,
    ClustersUnattended,
    refuse_unattended,
    unattended,
)
from api.runs.status import RunStatus
from tests.worker.clusters.scene import ClusterScene
from tests.worker.scene import PROJECT
from trainer.contract.reasons import ReasonCode
from worker import driver, rounds


def test_live_clusters_need_somebody_who_can_end_them(far: ClusterScene) -> None:
    run_id = far.submit()
    far.run_for(30)
    [cluster] = far.clusters(run_id)
    with far.parts.database.transaction() as session:
        refuse_unattended(session, clouds="skypilot", abandon=False)
        refuse_unattended(session, clouds="", abandon=True)
        with pytest.raises(ClustersUnattended, match=cluster.name):
            refuse_unattended(session, clouds="", abandon=False)
    far.cancel(run_id)
    far.run_for(300)
    with far.parts.database.transaction() as session:
        refuse_unattended(session, clouds="", abandon=False)


def nobody_asks_the_clouds(far: ClusterScene, seconds: float) -> None:
    """The clock and the general worker go on; what they send to `clusters` stays there."""
    for _ in range(int(seconds / 5)):
        far.clouds.pass_time(5.0)
        far.look_at_budgets()
        for run_id in rounds.runs(far.parts, now=far.now):
            driver.reconcile(far.parts, run_id, must_be_due=True, clock=far.clock)
        rounds.clusters(far.parts, now=far.now)


def warning(far: ClusterScene, project_id: str | None = None) -> str | None:
    with far.parts.database.transaction() as session:
        return unattended(session, now=far.now, project_id=project_id)


def test_a_cluster_that_nobody_rents_is_told_of_within_minutes(far: ClusterScene) -> None:
    far.submit()
    nobody_asks_the_clouds(far, UNATTENDED_S)
    assert warning(far) is None
    nobody_asks_the_clouds(far, 60.0)
    told = warning(far)
    assert told == warning(far, PROJECT)
    assert told is not None
    assert told.startswith("Nobody has looked after 1 cluster for 5 min: nothing is rented and")
    assert "worker --queues clusters" in told
    assert warning(far, "prj_other") is None
    far.run_for(15)
    assert warning(far) is None


def test_a_cluster_that_nobody_ends_is_told_of(far: ClusterScene) -> None:
    run_id = far.submit()
    far.run_for(30)
    plan = far.enter(run_id)
    far.cancel(run_id)
    far.report(plan, ReasonCode.RUNNER_STOPPED)
    assert far.status(run_id) is RunStatus.CANCELLED
    nobody_asks_the_clouds(far, UNATTENDED_S + 60.0)
    assert far.clusters(run_id)[0].state != "gone"
    assert warning(far) is not None
    far.run_for(300)
    assert far.clusters(run_id)[0].state == "gone"
    assert warning(far) is None
