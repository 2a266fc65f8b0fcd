"""Reads and writes of a service that keeps 100 million metric points.

    .venv/bin/python -m benchmarks.service.load.points --folder DIR [--points N] [--minutes M]

The database stays in the folder, so that a call that is stopped goes on with the next one: points
are stored run by run, 100 series of 1,000 steps each, in one transaction per run, until there are
as many, the minutes are over, or less than `--spare-gb` is free. Then, beside them, 100,000 steps
of 20 series are read thinned to 500 points, the list of runs is read, and batches of 1,000 values
are ingested by the code of the service. Medians of rounds after a first one that warms up. About
22 GB for 100 million points; delete the folder by hand. Writes `benchmarks/results/points.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from api.results.derive import derive
from api.tables import Project, Run
from api.tables.database import Database
from benchmarks.service.load.lists import COPIES
from benchmarks.service.outcomes import ROOT, postgres
from tests.api.fixtures.serving import serve
from tests.api.fixtures.story import PROJECT, Story
from tests.fixtures import factories as make
from tests.fixtures.migrated import migrate

RESULT = ROOT / "benchmarks" / "results" / "points.json"
SERIES, STEPS = 100, 1_000
PER_RUN = SERIES * STEPS
LONG_STEPS, LONG_SERIES, MAX_POINTS = 100_000, 20, 500
FILL = """
INSERT INTO metrics (run_id, name, decoding, step, attempt, value)
SELECT %s, 'policy/figure_' || lpad(series::text, 3, '0'), 'train', step, 1, random()
FROM generate_series(1, %s) series, generate_series(1, %s) step
"""
ROUNDS = 9


def prepare(database: Database, connection: psycopg.Connection, num_runs: int) -> str:
    """Store the runs if they are not there yet; return the id of the long one."""
    with database.transaction() as session:
        is_new = session.get(Project, PROJECT) is None
    if is_new:
        story = Story(database)
        story.prepare()
        story.running()
    (first,) = connection.execute(
        "SELECT id FROM runs WHERE id NOT LIKE 'run_copy%' ORDER BY created_at LIMIT 1"
    ).fetchone() or ("",)
    connection.execute(COPIES, (num_runs,))
    return str(first)


def fill(connection: psycopg.Connection, options: Any) -> int:
    """Store points until there are enough; return how many there are."""
    end = time.monotonic() + 60 * options.minutes
    missing = connection.execute(
        "SELECT id FROM runs WHERE id LIKE 'run_copy%'"
        " AND NOT EXISTS (SELECT FROM metrics WHERE run_id = runs.id) ORDER BY id"
    ).fetchall()
    (num_runs,) = connection.execute(
        "SELECT count(*) FROM runs WHERE id LIKE 'run_copy%'"
    ).fetchone() or (0,)
    num_filled = num_runs - len(missing)
    for (run_id,) in missing:
        free_gb = shutil.disk_usage(options.folder).free / 1e9
        if time.monotonic() > end or free_gb < options.spare_gb:
            print(f"stopped at {num_filled * PER_RUN:,} points, {free_gb:.0f} GB free", flush=True)
            break
        connection.execute(FILL, (run_id, SERIES, STEPS))
        num_filled += 1
        if num_filled % 50 == 0:
            print(f"{num_filled * PER_RUN:,} points", flush=True)
    return num_filled * PER_RUN


def timed(action: Callable[[], object]) -> dict[str, float]:
    """Return the median and the longest time of an action (ms), without the first."""
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        action()
        times.append(1e3 * (time.perf_counter() - began))
    return {"p50_ms": round(statistics.median(times[1:]), 1), "max_ms": round(max(times[1:]), 1)}


def measure(url: str, database: Database, folder: Path, run_id: str) -> dict[str, Any]:
    """Ask the application over loopback, and ingest into the long run; return the times."""

    def ingest() -> None:
        step = time.monotonic_ns() % 2**30
        metrics = {f"loss/{number}": 1.0 for number in range(1_000)}
        with database.transaction() as session:
            run = session.get_one(Run, run_id)
            derive(session, run, 1, [make.step(1, LONG_STEPS + step, metrics=metrics)])

    with (
        serve(url, database, folder / "blobs", has_own_pool=True) as served,
        served.client() as client,
    ):

        def get(path: str, **query: object) -> Callable[[], object]:
            return lambda: client.get(path, params=query).raise_for_status()

        path = f"/v1/runs/{run_id}/metrics"
        return {
            "500 points of a series": timed(
                get(path, names="policy/figure_001", max_points=MAX_POINTS)
            ),
            "20 series": timed(get(path, names="policy/*", max_points=MAX_POINTS)),
            "list of 50 runs": timed(get("/v1/runs", limit=50)),
            "ingest of 1,000 values": timed(ingest),
        }


def main() -> None:
    """Fill, measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--points", type=int, default=100_000_000)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--spare-gb", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.folder.chmod(0o755)  # under root the server runs as nobody
    with postgres(options.folder) as server:
        migrate(server.url())
        database = Database(server.url())
        url = server.url(driver="postgresql")
        with psycopg.connect(url, autocommit=True) as connection:
            run_id = prepare(database, connection, options.points // PER_RUN)
            points = fill(connection, options)
            series = connection.execute(
                "SELECT 1 FROM metrics WHERE run_id = %s LIMIT 1", (run_id,)
            ).fetchone()
            if series is None:
                connection.execute(FILL, (run_id, LONG_SERIES, LONG_STEPS))
            connection.execute("VACUUM ANALYZE")
            size = connection.execute("SELECT pg_total_relation_size('metrics')").fetchone()
        found = measure(server.url(), database, options.folder, run_id)
        database.close()
    gigabytes = round(size[0] / 1e9, 2) if size is not None else 0.0
    facts = {
        "points": points + LONG_SERIES * LONG_STEPS,
        "metrics_gb": gigabytes,
        **found,
        "load": round(os.getloadavg()[0], 1),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    print(json.dumps(facts, indent=1))
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
