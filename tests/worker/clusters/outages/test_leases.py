"""Who works on a cluster, and for how long: a row lease that outlasts the next call to a cloud."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from api.clusters import leases
from tests.worker.clusters.scene import ClusterScene
from tests.worker.clusters.scripted import ScriptedClouds

LONGEST_CALL_S = 75.0


def claim(far: ClusterScene, cluster_id: str, now: datetime) -> tuple[int, datetime | None] | None:
    with far.parts.database.transaction() as session:
        taken = leases.claim(session, cluster_id, now=now)
        return None if taken is None else (taken.epoch, taken.lease_until)


def test_of_two_workers_one_gets_a_cluster_and_the_other_does_not_wait(far: ClusterScene) -> None:
    run_id = far.submit()
    far.sweep()
    [cluster] = far.clusters(run_id)
    far.clouds.pass_time(10)
    over = far.now + timedelta(seconds=leases.LEASE_S)
    with far.parts.database.transaction() as session:
        taken = leases.claim(session, cluster.id, now=far.now)
        assert taken is not None
        assert (taken.epoch, taken.lease_until) == (cluster.epoch + 1, over)
        assert claim(far, cluster.id, far.now) is None
    assert claim(far, cluster.id, far.now) is None
    later = over + timedelta(seconds=1)
    assert claim(far, cluster.id, later) == (
        cluster.epoch + 2,
        later + timedelta(seconds=leases.LEASE_S),
    )


def test_nobody_gets_a_cluster_that_is_not_due(far: ClusterScene) -> None:
    run_id = far.submit()
    far.run_for(30)
    [cluster] = far.clusters(run_id)
    assert cluster.due_at > far.now
    assert claim(far, cluster.id, far.now) is None


def test_a_lease_lasts_over_the_next_call_however_slow_those_before_were(
    far: ClusterScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = far.submit()
    far.run_for(30)
    far.cancel(run_id)
    left = []

    def slow(whole: Any) -> Any:
        def call(clouds: ScriptedClouds, name: str) -> Any:
            [cluster] = far.clusters(run_id)
            assert cluster.lease_until is not None
            left.append((cluster.lease_until - far.now).total_seconds())
            far.clouds.pass_time(30)
            return whole(clouds, name)

        return call

    for name in ("down", "open_launches", "sighting"):
        monkeypatch.setattr(ScriptedClouds, name, slow(getattr(ScriptedClouds, name)))
    far.run_for(200)
    assert [cluster.state for cluster in far.clusters(run_id)] == ["gone"]
    assert len(left) >= 3
    assert min(left) >= LONGEST_CALL_S
