"""The time of thinned series of a run of 100,000 steps, and of all of their points.

    .venv/bin/python -m benchmarks.service.metrics [--rounds N]

PostgreSQL runs as `hillclimb up` starts it, and the real application answers over loopback in this
process, one request after the other. CPU is that of this process, the client's part included, and
that of PostgreSQL's backends (in ticks of 10 ms, summed over the rounds). Writes
`benchmarks/results/metrics_read.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from api.tables.database import Database
from benchmarks.service.outcomes import postgres
from tests.api.fixtures.serving import Served, serve
from tests.api.fixtures.story import Story
from tests.fixtures.migrated import migrate

RESULT = Path(__file__).parents[1] / "results" / "metrics_read.json"
STEPS, NUM_SERIES, MAX_POINTS = 100_000, 20, 500
FILL = """
    INSERT INTO metrics (run_id, name, decoding, step, attempt, value)
    SELECT %s, format('policy/figure_%%s', lpad(series::text, 2, '0')), 'train', step, 1, random()
    FROM generate_series(1, %s) AS step, generate_series(1, %s) AS series
"""
QUESTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "one series, 500 points": ({"names": "policy/figure_01", "max_points": MAX_POINTS}, 1),
    "20 series, 500 points each": ({"names": "policy/*", "max_points": MAX_POINTS}, NUM_SERIES),
    "one series, every point": ({"names": "policy/figure_01"}, 1),
}


def backends_cpu_s(connection: psycopg.Connection) -> float:
    """Return the CPU time of all backends of the database (s)."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    ticks = 0
    for (pid,) in connection.execute(query):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def ask(served: Served, run_id: str, connection: psycopg.Connection, rounds: int) -> dict[str, Any]:
    """Return times and sizes of the answers by question."""
    answers: dict[str, Any] = {}
    with served.client() as client:
        for label, (query, num_series) in QUESTIONS.items():
            walls, cpus, size = [], [], 0
            backends = 0.0
            for number in range(rounds + 1):
                if number == 1:  # the first one plans and warms up
                    backends = backends_cpu_s(connection)
                began, cpu = time.perf_counter(), time.process_time()
                answer = client.get(f"/v1/runs/{run_id}/metrics", params=query)
                wall, used = time.perf_counter() - began, time.process_time() - cpu
                assert len(answer.json()["data"]) == num_series, answer.text[:200]
                size = len(answer.content)
                if number:
                    walls.append(wall)
                    cpus.append(used)
            backends = backends_cpu_s(connection) - backends
            answers[label] = {
                "p50_ms": round(1e3 * statistics.median(walls), 1),
                "lowest_ms": round(1e3 * min(walls), 1),
                "highest_ms": round(1e3 * max(walls), 1),
                "process_cpu_ms": round(1e3 * statistics.median(cpus), 1),
                "postgres_cpu_ms": round(1e3 * backends / rounds, 1),
                "kB": round(size / 1e3),
                "load": round(os.getloadavg()[0], 1),
            }
            print(label, answers[label], flush=True)
    return answers


def main() -> None:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="requests of each kind")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, postgres(Path(name)) as server:
        migrate(server.url())
        database = Database(server.url())
        story = Story(database)
        story.prepare()
        run_id = story.running()
        with psycopg.connect(server.url(driver="postgresql"), autocommit=True) as connection:
            connection.execute(FILL, (run_id, STEPS, NUM_SERIES))
            connection.execute("VACUUM ANALYZE")
            with serve(server.url(), database, Path(name) / "blobs", has_own_pool=True) as served:
                answers = ask(served, run_id, connection, arguments.rounds)
        database.close()
    result = {
        "measured": datetime.now(UTC).date().isoformat(),
        "steps": STEPS,
        "cores": os.cpu_count(),
        "answers": answers,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
