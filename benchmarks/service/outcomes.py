"""The time of answers about runs that have a million outcomes between them.

    .venv/bin/python -m benchmarks.service.outcomes [--out FILE] [--keep FOLDER] [--before FILE]

PostgreSQL runs as `hillclimb up` starts it, with its default settings; `fill.py` ingests the
outcomes by the service's own code. The real application answers over loopback, the API key checked
at every request, one request after the other. `--keep` leaves the filled database in a folder, and
the next call with the same folder goes on from there; `--before` adds the answers of an earlier
result. Statements above 50 ms are explained in the server's log, whose path is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from api.tables.database import Database
from benchmarks.service.fill import ENVS, EVAL_EVERY, TOTAL_STEPS, fill, ingest_seconds
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.api.fixtures.serving import Served, serve
from tests.api.fixtures.story import PROJECT
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import launch, stop

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "outcomes.json"
PASSWORD = "a-password-for-loopback"
LIMIT_MS = 500.0
PLANS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "50ms",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
}
"""The server explains slow statements as they ran, for the application's own parameters."""
LIMITED = ("verdicts", "compare", "signal")
"""Beginnings of the names of questions that must be answered within the limit."""


def questions(first: str, second: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and query by the name of the question."""
    middle, run = EVAL_EVERY * 10, f"/v1/runs/{first}"
    listed = f"{run}/trajectories"
    return {
        "verdicts, k=1": (f"{run}/evals/report", {}),
        "verdicts, k=3": (f"{run}/evals/report", {"k": 3}),
        "verdicts, v1": (f"{run}/evals/report", {"rule": "v1"}),
        "verdicts, another step": (f"{run}/evals/report", {"after": middle}),
        "compare two runs": ("/v1/compare", {"a": first, "b": second}),
        "compare two runs, k=3": ("/v1/compare", {"a": first, "b": second, "k": 3}),
        "compare two steps": ("/v1/compare", {"a": f"{first}@0", "b": f"{first}@{TOTAL_STEPS}"}),
        "signal": (f"{run}/signal", {}),
        "signal, last 50 steps": (f"{run}/signal", {"window": 50}),
        "evals": (f"{run}/evals", {}),
        "rollouts": (listed, {}),
        "rollouts, failed": (listed, {"failed": "true"}),
        "rollouts of a step": (listed, {"step": middle, "split": "eval"}),
        "rollouts of an environment": (listed, {"env": ENVS[3]}),
        "rollouts of a task": (listed, {"task_key": f"{ENVS[3]}/eval/template03/00003"}),
        "rollouts without a grade": (listed, {"status": "infra_error", "split": "eval"}),
        "metrics, one name": (f"{run}/metrics", {"names": "policy/ppo_clip_ratio"}),
        "metrics of an environment": (f"{run}/metrics", {"names": f"reward/{ENVS[3]}/*"}),
        "run": (run, {}),
    }


@contextmanager
def postgres(folder: Path) -> Iterator[PostgresServer]:
    """Yield a running server whose data is in the folder."""
    server = PostgresServer(
        directory=folder / "pg", port=find_free(), password=PASSWORD, settings=PLANS
    )
    server.initialise()
    log = folder / "log"
    process = launch(server.command(), cwd=server.data, log=log, account=server.account)
    try:
        if not wait_until(server.ready, deadline_s=60.0):
            raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-2000:]}")
        print(f"plans of slow statements: {log}")
        yield server
    finally:
        stop(process)


def prepare(server: PostgresServer, database: Database, folder: Path) -> list[str]:
    """Migrate, fill where nothing is there yet, vacuum; return the runs' ids."""
    migrate(server.url())
    known = folder / "runs.json"
    if not known.exists():
        began = time.perf_counter()
        known.write_text(json.dumps(fill(database, PROJECT)))
        print(f"filled in {time.perf_counter() - began:.0f} s")
    with psycopg.connect(server.url(driver="postgresql"), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    run_ids: list[str] = json.loads(known.read_text())
    return run_ids


def count_rows(server: PostgresServer) -> dict[str, int]:
    """Return the number of rows of each table that ingest derives."""
    tables = ("outcomes", "step_signals", "evals", "metrics")
    with psycopg.connect(server.url(driver="postgresql")) as connection:
        counts = {}
        for table in tables:
            row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert row is not None
            counts[table] = int(row[0])
    return counts


def measure(served: Served, run_ids: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Ask every question once, then `rounds` times; milliseconds and bytes of the answers."""
    found: dict[str, dict[str, float]] = {}
    with served.client() as client:
        for name, (path, query) in questions(*run_ids).items():
            first, size = _ask(client, path, query)
            times = sorted(_ask(client, path, query)[0] for _ in range(rounds))
            found[name] = {
                "first_ms": round(first, 1),
                "p50_ms": round(statistics.median(times), 1),
                "p95_ms": round(times[min(rounds - 1, int(0.95 * rounds))], 1),
                "kib": round(size / 1024, 1),
            }
            print(f"{name:<30}" + "".join(f"{value:>10.1f}" for value in found[name].values()))
    return found


def _ask(client: httpx.Client, path: str, query: Mapping[str, Any]) -> tuple[float, int]:
    began = time.perf_counter()
    answer = client.get(path, params=query)
    elapsed = 1000.0 * (time.perf_counter() - began)
    answer.raise_for_status()
    return elapsed, len(answer.content)


def main() -> int:
    """Measure, print, write; exit code 1 when a limited question takes longer than the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hillclimb-outcomes-") as name:
        folder = (given.keep or Path(name)).resolve()
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # under root the server runs as nobody
        with postgres(folder) as server:
            database = Database(server.url())
            run_ids = prepare(server, database, folder)
            load = os.getloadavg()[0]
            with serve(server.url(), database, folder / "blobs", has_own_pool=True) as served:
                answers = measure(served, run_ids, given.rounds)
            rows = count_rows(server)
            ingest = statistics.median(ingest_seconds(database, run_ids[0], given.rounds))
            database.close()
    slow = [
        name
        for name, times in answers.items()
        if name.startswith(LIMITED) and times["p95_ms"] > LIMIT_MS
    ]
    found = {
        "rows": rows,
        "rounds": given.rounds,
        "answers": answers,
        "ingest_of_a_step_p50_ms": round(1000.0 * ingest, 1),
        "above_the_limit": slow,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, load before {load:.1f}",
    }
    if given.before:
        found["answers_before"] = json.loads(given.before.read_text())["answers"]
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
