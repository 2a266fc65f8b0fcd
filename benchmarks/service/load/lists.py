"""The time of a list of runs where the project has 10,000, from 1 and from 16 connections.

    .venv/bin/python -m benchmarks.service.load.lists [--runs N] [--requests N]

PostgreSQL and one API process as `hillclimb up` starts them. The runs are copies of a submitted
one, a second apart. Asked for: the newest 50, those of a name, and 50 in the middle, which a cursor
leads to. CPU times are of the processes themselves. Writes `benchmarks/results/lists.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg

from api.tables import Run
from benchmarks.service.load.posts import Submitting
from benchmarks.service.outcomes import ROOT, postgres
from benchmarks.service.processes import tree_s
from tests.fixtures.factories import spec_body
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import stop

RESULT = ROOT / "benchmarks" / "results" / "lists.json"
CONNECTIONS = (1, 16)
COLUMNS = ", ".join(c.name for c in Run.__table__.columns if c.computed is None)
COPIES = f"""
INSERT INTO runs ({COLUMNS}) SELECT {COLUMNS} FROM (
    SELECT (jsonb_populate_record(r, jsonb_build_object(
        'id', 'run_copy' || n, 'name', 'climb ' || n %% 100, 'status', 'succeeded', 'due_at', NULL,
        'created_at', r.created_at - n * interval '1 second'))).*
    FROM runs r, generate_series(1, %s) n
    WHERE r.id = (SELECT id FROM runs WHERE id NOT LIKE 'run_copy%%' LIMIT 1)) copies
ON CONFLICT DO NOTHING
"""


def measure(
    api: Submitting, query: dict[str, Any], connections: int, requests: int, postmaster: int
) -> dict[str, float]:
    """Return times of the answers (ms), and what one cost (ms of CPU)."""
    clients = [api.client() for _ in range(connections)]

    def ask(client: httpx.Client) -> list[float]:
        times = []
        for _ in range(max(1, requests // connections)):
            began = time.perf_counter()
            answer = client.get("/v1/runs", params=query).raise_for_status()
            times.append(1e3 * (time.perf_counter() - began))
            assert len(answer.json()["data"]) == query["limit"]
        return times

    for client in clients:
        client.get("/v1/runs", params=query).raise_for_status()
    used, database, load = api.cpu_s(), tree_s(postmaster), os.getloadavg()[0]
    with ThreadPoolExecutor(connections) as pool:
        times = sorted(each for part in pool.map(ask, clients) for each in part)
    used, database = api.cpu_s() - used, tree_s(postmaster) - database
    for client in clients:
        client.close()
    return {
        "p50_ms": round(statistics.median(times), 1),
        "p95_ms": round(times[min(len(times) - 1, int(0.95 * len(times)))], 1),
        "api_cpu_ms": round(1e3 * used / len(times), 2),
        "postgres_cpu_ms": round(1e3 * database / len(times), 2),
        "load": round(load, 1),
    }


def main() -> None:
    """Fill, measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=320)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="hillclimb-lists-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # under root the server runs as nobody
        with postgres(folder) as server:
            migrate(server.url())
            postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
            api = Submitting(ROOT, folder, server.url(), "redis://127.0.0.1:1")
            try:
                with api.client() as client:
                    client.post("/v1/runs", json=spec_body()).raise_for_status()
                    url = server.url(driver="postgresql")
                    with psycopg.connect(url, autocommit=True) as connection:
                        connection.execute(COPIES, (options.runs - 1,))
                        connection.execute("VACUUM ANALYZE runs")
                    cursor = None
                    for _ in range(options.runs // 400):
                        query = {"limit": 200} | ({"cursor": cursor} if cursor else {})
                        page = client.get("/v1/runs", params=query).raise_for_status().json()
                        cursor = page["next_cursor"]
                questions: dict[str, dict[str, Any]] = {
                    "newest 50": {"limit": 50},
                    "50 of a name": {"limit": 50, "name": "climb 7"},
                    "50 in the middle": {"limit": 50, "cursor": cursor},
                }
                for connections in CONNECTIONS:
                    for label, query in questions.items():
                        key = f"{label}, {connections} connections"
                        found[key] = measure(api, query, connections, options.requests, postmaster)
                        print(key, found[key], flush=True)
            finally:
                stop(api.process)
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    facts = {"runs": options.runs, **found, "machine": machine}
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
