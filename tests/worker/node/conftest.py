"""The real API on loopback, a rented attempt, and nodes that are told about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.runs.journal import utc_now
from hillclimb.blobs.disk import DiskStore
from tests.api.clusters.renting import Rented, rent
from tests.api.fixtures.serving import SECRET, Served, serve
from tests.worker.conftest import database, database_url, sim
from tests.worker.node.bench import NodeBench
from tests.worker.run_simulation import PROJECT, RunSimulation

__all__ = ["database", "database_url", "sim"]

SECRETS = {"AWS_SECRET_ACCESS_KEY": "fleet-key-of-the-operator"}
TRAINS = {
    "schedule": {"total_steps": 3, "train_batch_size": 1, "mini_batch_size": 1},
    "checkpoints": {"interval": 1},
}


@pytest.fixture
def store(tmp_path: Path, sim: RunSimulation) -> DiskStore:
    """The blob store that service and nodes share."""
    made = DiskStore(tmp_path / "blobs")
    sim.context = dataclasses.replace(sim.context, store=made)
    return made


@pytest.fixture
def served(
    sim: RunSimulation, store: DiskStore, database_url: str, tmp_path: Path
) -> Iterator[Served]:
    with serve(database_url, sim.context.database, tmp_path / "blobs") as running:
        services = running.server.config.app.state.services  # type: ignore[union-attr]
        here = {"public_url": running.url, "node_api_url": running.url}
        settings = services.settings.model_copy(update=here)
        running.server.config.app.state.services = dataclasses.replace(  # type: ignore[union-attr]
            services, settings=settings, node_secrets=SECRETS
        )
        yield running


@pytest.fixture
def make_bench(
    sim: RunSimulation, store: DiskStore, tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """Factory: `make_bench(url)` rents an attempt; an empty url is a node that cannot reach us."""
    made: list[NodeBench] = []

    def make(url: str, *ips: str) -> tuple[NodeBench, Rented]:
        database = sim.context.database
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
            "HILLCLIMB_BOOTSTRAP_TOKEN": rented.code(SECRET).code,
        }
        bench = NodeBench(folder=tmp_path, variables=variables, ips=ips or ("127.0.0.1",))
        bench.prepare()
        made.append(bench)
        return bench, rented

    yield make
    for bench in made:
        bench.clean()
