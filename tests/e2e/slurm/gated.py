"""SkyPilot's clouds, whose answer to a launch can be held back: the moment to kill a worker in.

`HILLCLIMB_CLOUDS=tests.e2e.slurm.gated:make_clouds` with `GATES`, a directory: while it has a file
`hold`, a launch that was asked for writes `asked` there and does not return.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.clusters.base import Clouds, ClusterPlan

GATES = "HILLCLIMB_E2E_GATES"
FACTORY = "tests.e2e.slurm.gated:make_clouds"


class GatedClouds:
    """Everything but the return of `launch` is SkyPilot's."""

    def __init__(self, clouds: Clouds, gates: Path) -> None:
        self._clouds = clouds
        self._gates = gates

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clouds, name)

    def launch(self, plan: ClusterPlan) -> str:
        """Ask for the cluster, and keep the answer while the gate is shut."""
        request_id = self._clouds.launch(plan)
        while (self._gates / "hold").exists():
            (self._gates / "asked").write_text(plan.name)
            time.sleep(0.1)
        return request_id


def make_clouds(prefix: str) -> GatedClouds:
    """As `worker.clusters.skypilot:make_clouds`."""
    from worker.clusters.skypilot import make_clouds as make  # noqa: PLC0415 - takes seconds

    return GatedClouds(make(prefix), Path(os.environ[GATES]))
