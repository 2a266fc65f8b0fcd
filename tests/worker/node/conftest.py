"""The real API on loopback, a rented attempt, and nodes that are told about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.runs.journal import utc_now
from tests.api.clusters.renting import Rented, rent
from tests.api.serving import SECRET, Served, serve
from tests.worker.conftest import database, database_url, scene
from tests.worker.node.bench import NodeBench
from tests.worker.scene import PROJECT, Scene
from trainer.stores.disk import DiskStore

__all__ = ["database", "database_url", "scene"]

SECRETS = {"FLEET_API_KEY": "fleet-key-of-the-operator"}
TRAINS = {
    "schedule": {"total_steps": 3, "train_batch_size": 1, "mini_batch_size": 1},
    "checkpoints": {"interval": 1},
}


@pytest.fixture
def store(tmp_path: Path, scene: Scene) -> DiskStore:
    """The blob store that service and nodes share."""
    made = DiskStore(tmp_path / "blobs")
    scene.parts = dataclasses.replace(scene.parts, store=made)
    return made


@pytest.fixture
def served(scene: Scene, store: DiskStore, database_url: str, tmp_path: Path) -> Iterator[Served]:
    with serve(database_url, scene.parts.database, tmp_path / "blobs") as running:
        services = running.server.config.app.state.services  # type: ignore[union-attr]
        here = {"public_url": running.url, "node_api_url": running.url}
        settings = services.settings.model_copy(update=here)
        running.server.config.app.state.services = dataclasses.replace(  # type: ignore[union-attr]
            services, settings=settings, node_secrets=SECRETS
        )
        yield running


@pytest.fixture
def make_bench(scene: Scene, store: DiskStore, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Factory: `make_bench(url)` rents an attempt; an empty url is a node that cannot reach us."""
    made: list[NodeBench] = []

    def make(url: str, *ips: str) -> tuple[NodeBench, Rented]:
        database = scene.parts.database
        rented = rent(
            database,
            PROJECT,
            now=utc_now(),
            api_reachable=bool(url),
            num_nodes=len(ips) or 1,
            **TRAINS,
        )
        variables = {
            "HILLCLIMB_API_URL": url,
            "HILLCLIMB_RUN_ID": rented.run_id,
            "HILLCLIMB_ATTEMPT": "1",
            "HILLCLIMB_ATTEMPT_ID": rented.attempt_id,
            "HILLCLIMB_EXCHANGE_CODE": rented.code(SECRET).code,
        }
        bench = NodeBench(folder=tmp_path, variables=variables, ips=ips or ("127.0.0.1",))
        bench.prepare()
        made.append(bench)
        return bench, rented

    yield make
    for bench in made:
        bench.clean()
