"""A service that could not end its clusters does not start."""

from __future__ import annotations

import pytest

from api.clusters.attendance import ClustersUnattended, refuse_unattended
from tests.worker.clusters.scene import ClusterScene


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
