"""Metric values that this service and MLflow's server store per second, in turn on one PostgreSQL.

    sh tests/e2e/mlflow/install_mlflow.sh
    .venv/bin/python -m benchmarks.service.beside_mlflow [--seconds N] [--rounds N]

Each server is one process with one worker, and the same threads send it requests of 1,000 values
over loopback: `POST /v1/ingest` with events of a trainer's steps, MLflow's `runs/log-batch` with
the same names, steps and values. Senders have a run of their own each. The two take turns, shape by
shape and number of senders by number; the ratio is that of the medians of the rounds. MLflow
receives only what answers 200 counted. Writes `benchmarks/results/beside_mlflow.json`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg

from api.tables import Project
from api.tables.database import Database
from benchmarks.service.ingest import SHAPES, Shape, launch
from benchmarks.service.load.closed_loop import connected, post
from benchmarks.service.outcomes import postgres
from benchmarks.service.streams import PROJECT, api
from hillclimb.protocol.events import IngestBatch
from hillclimb.stack.servers.postgres import PostgresServer
from tests.api.fixtures.stage import Stage
from tests.e2e.mlflow.server import mlflow_server
from tests.fixtures.migrated import migrate

RESULT = Path(__file__).parents[1] / "results" / "beside_mlflow.json"
SENDERS = (1, 4, 16)
LABELS = ("100 metrics x 10", "200 metrics x 5")
MADE_PER_S = 100
"""Requests of one sender that are made for each second before it begins; of four, half as many."""
OURS, THEIRS = "hillclimb", "mlflow"
Requests = Iterator[tuple[str, str]]
"""Path and body of each request of a sender."""


def events_of(shape: Shape) -> Requests:
    """Yield our requests of the shape, for ever."""
    for first in itertools.count(1, shape.events):
        batch = IngestBatch(events=tuple(shape.batch(first)))
        yield "/v1/ingest", batch.model_dump_json()


def log_batches_of(shape: Shape, run_id: str) -> Requests:
    """Yield MLflow's requests of the shape, for ever."""
    for first in itertools.count(1, shape.events):
        metrics = [
            {"key": name, "value": value, "timestamp": int(time.time() * 1e3), "step": event.step}
            for event in shape.batch(first)
            for name, value in event.metrics.items()  # type: ignore[union-attr]
        ]
        body = json.dumps({"run_id": run_id, "metrics": metrics})
        yield "/api/2.0/mlflow/runs/log-batch", body


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A sender's requests, and the token that they carry; null for none."""

    requests: Requests
    token: str | None = None

    def made(self, port: int) -> Iterator[bytes]:
        """Yield the bytes of its requests."""
        for path, body in self.requests:
            yield post(path, body.encode(), port=port, key=self.token)


def stored_per_s(
    url: str, senders: Sequence[Sender], shape: Shape, seconds: float
) -> tuple[float, int]:
    """Return values stored per second by all senders, and the number of refused requests.

    Requests are made beforehand, and sent over plain sockets: what the senders compute would count
    as the servers' time, from the same cores.
    """
    port = int(url.rpartition(":")[2])
    start = threading.Barrier(len(senders))
    num_made = int(seconds * MADE_PER_S / len(senders) ** 0.5)
    made = [sender.made(port) for sender in senders]
    ready = [(list(itertools.islice(each, num_made)), each) for each in made]

    def push(sender: tuple[list[bytes], Iterator[bytes]]) -> tuple[int, int]:
        requests = itertools.chain(*sender)
        stored = refused = 0
        connection = connected(port)
        with closing(connection.socket):
            start.wait()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                is_stored = connection.is_accepted(next(requests))
                stored, refused = stored + is_stored, refused + (not is_stored)
        return stored, refused

    began = time.monotonic()
    with ThreadPoolExecutor(len(senders)) as pool:
        counts = list(pool.map(push, ready))
    elapsed = time.monotonic() - began
    return sum(stored for stored, _ in counts) * shape.values / elapsed, sum(r for _, r in counts)


def their_run(url: str) -> str:
    """Return the id of a new run of MLflow."""
    body = {"experiment_id": "0", "start_time": int(time.time() * 1e3)}
    answer = httpx.post(f"{url}/api/2.0/mlflow/runs/create", json=body, timeout=60)
    run_id: str = answer.raise_for_status().json()["run"]["info"]["run_id"]
    return run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Both servers, on two databases of one PostgreSQL."""

    stage: Stage
    ours: str
    """Our address."""
    theirs: str
    """MLflow's address."""


@contextmanager
def both(folder: Path) -> Iterator[Servers]:
    """Yield the servers; stop them."""
    with postgres(folder) as server:
        migrate(server.url())
        database = Database(server.url())
        with database.transaction() as session:
            session.merge(Project(id=PROJECT, name=PROJECT))
        with api(server, folder) as (port, _):
            try:
                with mlflow_server(folder / "mlflow", _second_database(server)) as theirs:
                    ours = f"http://127.0.0.1:{port}"
                    yield Servers(stage=Stage(database), ours=ours, theirs=theirs.url)
            finally:
                database.close()


def _second_database(server: PostgresServer) -> str:
    with psycopg.connect(server.url(driver="postgresql"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE mlflow")
    return server.url("mlflow", driver="postgresql+psycopg2")


def measure(
    servers: Servers, shape: Shape, senders: int, *, seconds: float, rounds: int
) -> dict[str, Any]:
    """Return what each stored per second, in turn, and the ratio of the medians."""
    stage, ours, theirs = servers.stage, servers.ours, servers.theirs

    def hillclimb() -> tuple[float, int]:
        plans = [launch(stage, f"beside-{time.monotonic_ns()}") for _ in range(senders)]
        senders_of = [Sender(requests=events_of(shape), token=each.attempt_token) for each in plans]
        return stored_per_s(ours, senders_of, shape, seconds)

    def mlflow() -> tuple[float, int]:
        runs = [their_run(theirs) for _ in range(senders)]
        senders_of = [Sender(requests=log_batches_of(shape, run_id)) for run_id in runs]
        return stored_per_s(theirs, senders_of, shape, seconds)

    ways: Mapping[str, Callable[[], tuple[float, int]]] = {OURS: hillclimb, THEIRS: mlflow}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    refused = dict.fromkeys(ways, 0)
    for _ in range(rounds):
        for name, way in ways.items():
            rate, num_refused = way()
            rates[name].append(rate)
            refused[name] += num_refused
    medians = {name: statistics.median(each) for name, each in rates.items()}
    return {
        "values_per_s": {name: round(median) for name, median in medians.items()},
        "ratio": round(medians[OURS] / medians[THEIRS], 1) if medians[THEIRS] else None,
        "refused": refused,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    shapes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # under root the server runs as nobody
        with both(folder) as servers:
            for label, num in itertools.product(LABELS, SENDERS):
                found = measure(
                    servers, SHAPES[label], num, seconds=options.seconds, rounds=options.rounds
                )
                shapes.setdefault(label, {})[str(num)] = found
                print(label, num, found, flush=True)
    result = {
        "measured": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "senders": shapes,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
