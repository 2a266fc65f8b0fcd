"""Who works on a cluster, and for how long: a row lease that outlasts the next call to a cloud."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from api.clusters import leases
from api.runs.deadlines import CLUSTER_LEASE_S
from tests.worker.clusters.cluster_simulation import ClusterSimulation
from tests.worker.clusters.scripted import ScriptedClouds

LONGEST_CALL_S = 75.0


def claim(
    cluster_sim: ClusterSimulation, cluster_id: str, now: datetime
) -> tuple[int, datetime | None] | None:
    with cluster_sim.context.database.transaction() as session:
        taken = leases.claim(session, cluster_id, now=now)
        return None if taken is None else (taken.epoch, taken.lease_until)


def test_of_two_workers_one_gets_a_cluster_and_the_other_does_not_wait(
    cluster_sim: ClusterSimulation,
) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.sweep()
    [cluster] = cluster_sim.clusters(run_id)
    cluster_sim.clouds.pass_time(10)
    over = cluster_sim.now + timedelta(seconds=CLUSTER_LEASE_S)
    with cluster_sim.context.database.transaction() as session:
        taken = leases.claim(session, cluster.id, now=cluster_sim.now)
        assert taken is not None
        assert (taken.epoch, taken.lease_until) == (cluster.epoch + 1, over)
        assert claim(cluster_sim, cluster.id, cluster_sim.now) is None
    assert claim(cluster_sim, cluster.id, cluster_sim.now) is None
    later = over + timedelta(seconds=1)
    assert claim(cluster_sim, cluster.id, later) == (
        cluster.epoch + 2,
        later + timedelta(seconds=CLUSTER_LEASE_S),
    )


def test_nobody_gets_a_cluster_that_is_not_due(cluster_sim: ClusterSimulation) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(30)
    [cluster] = cluster_sim.clusters(run_id)
    assert cluster.due_at > cluster_sim.now
    assert claim(cluster_sim, cluster.id, cluster_sim.now) is None


def test_a_lease_lasts_over_the_next_call_however_slow_those_before_were(
    cluster_sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = cluster_sim.submit()
    cluster_sim.run_for(30)
    cluster_sim.cancel(run_id)
    left = []

    def slow(whole: Any) -> Any:
        def call(clouds: ScriptedClouds, name: str) -> Any:
            [cluster] = cluster_sim.clusters(run_id)
            assert cluster.lease_until is not None
            left.append((cluster.lease_until - cluster_sim.now).total_seconds())
            cluster_sim.clouds.pass_time(30)
            return whole(clouds, name)

        return call

    for name in ("terminate", "list_launches", "get_cluster"):
        monkeypatch.setattr(ScriptedClouds, name, slow(getattr(ScriptedClouds, name)))
    cluster_sim.run_for(200)
    assert [cluster.state for cluster in cluster_sim.clusters(run_id)] == ["terminated"]
    assert len(left) >= 3
    assert min(left) >= LONGEST_CALL_S
