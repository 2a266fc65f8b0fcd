"""The worker's context with scripted clouds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.api_presence import Api
from tests.worker.clusters.cluster_simulation import ClusterSimulation
from tests.worker.run_simulation import RunSimulation


@pytest.fixture
def cluster_sim(sim: RunSimulation, api: Api, tmp_path: Path) -> ClusterSimulation:
    return ClusterSimulation.of(sim.context, api, tmp_path)
