"""The worker's parts with scripted clouds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.clusters.scene import ClusterScene
from tests.worker.presence import Api
from tests.worker.scene import Scene


@pytest.fixture
def far(scene: Scene, api: Api, tmp_path: Path) -> ClusterScene:
    return ClusterScene.of(scene.parts, api, tmp_path)
