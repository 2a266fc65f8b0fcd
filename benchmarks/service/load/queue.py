"""The time of POST /v1/runs with and without a queue, and the cost of a queue that only waits.

    .venv/bin/python -m benchmarks.service.load.queue [--requests N] [--seconds S] [--out FILE]

PostgreSQL, Valkey, one API process, one worker and beat run as `hillclimb up` starts them, without
a runner. First runs are submitted over loopback from 1 and from 16 connections, with 0 and with
4,000 runs of the same project queued: without worker and beat, so that the queue stays. Then the
processes' CPU time is taken over a minute of waiting, with 0 and with 1,000 queued. The queue is
made of copies of one submitted run, and vacuumed, as autovacuum does after a minute. CPU times are
of the processes themselves, so they say more than wall times where the machine has other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import httpx
import psutil
import psycopg

from api.tables import Run
from benchmarks.service.load.closed_loop import closed_loop, post
from benchmarks.service.outcomes import PASSWORD, ROOT, postgres
from hillclimb.stack.servers.valkey import ValkeyServer
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.fixtures.factories import spec_body
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import launch, stop

RESULT = ROOT / "benchmarks" / "results" / "queue.json"
KEY = "hc_a-key-for-loopback-that-is-long-enough"
DEEP, WAITING = 4_000, 1_000
WARM_UP = 100
"""Requests before those that count: the process has then made its statements and threads."""
SEGMENTS = 6
"""Of the log, which a checkpoint keeps for later: `min_wal_size` is 80 MB."""
SETTLE_S = 70.0
"""Until the first check of every queued run is over, and its messages have expired."""
COLUMNS = ", ".join(c.name for c in Run.__table__.columns if c.computed is None)
COPIES = f"""
INSERT INTO runs ({COLUMNS}) SELECT {COLUMNS} FROM (
    SELECT (jsonb_populate_record(r, jsonb_build_object('id', 'run_copy' || n))).*
    FROM runs r, generate_series(1, %s) n
    WHERE r.id = (SELECT id FROM runs WHERE status = 'queued' LIMIT 1)) copies
"""
QUOTAS = """
INSERT INTO project_quotas (project_id, queued_runs, running_runs, submissions_per_hour, set_by)
SELECT id, 100000, 200, 1000000, 'benchmark' FROM projects ON CONFLICT DO NOTHING
"""


class Bench:
    """The servers and processes, each by name, and what is done to the queue."""

    def __init__(self, folder: Path, url: str, postmaster: int) -> None:
        self.folder, self.url = folder, url
        self.valkey = ValkeyServer(directory=folder / "valkey", port=find_free(), password=PASSWORD)
        self.port = find_free()
        self.trees = {"postgres": postmaster}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> None:
        variables = {
            "DATABASE_URL": self.url,
            "REDIS_URL": self.valkey.url,
            "HILLCLIMB_BLOBS_URL": str(self.folder / "blobs"),
            "HILLCLIMB_SECRET_KEY": PASSWORD,
            "HILLCLIMB_BOOTSTRAP_KEY": KEY,
            "HILLCLIMB_REQUESTS_PER_MINUTE": "1000000",
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        self.trees[name] = process.pid

    def start_api(self) -> None:
        self.valkey.initialise()
        log = self.folder / "valkey.log"
        self.processes.append(launch(self.valkey.command(), cwd=self.folder, log=log))
        place = ("--port", str(self.port), "--log-level", "warning")
        self.start("api", "api.http.live.serving", *place)
        if not wait_until(self.is_ready, deadline_s=120.0):
            raise RuntimeError((self.folder / "api.log").read_text()[-2000:])
        self.execute(QUOTAS)

    def start_worker(self) -> None:
        options = ("--concurrency", "1", "--without-gossip", "--without-mingle")
        self.start("worker", "celery", "-A", "worker.app", "worker", *options)
        schedule = ("-s", str(self.folder / "schedule"), "--pidfile=")
        self.start("beat", "celery", "-A", "worker.app", "beat", *schedule)

    def is_ready(self) -> bool:
        try:
            return self.client().get("/v1/health/ready").is_success
        except httpx.HTTPError:
            return False

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {KEY}"}
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=60, trust_env=False
        )

    def execute(self, statement: str, *values: object) -> None:
        plain = self.url.replace("+psycopg", "")
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(statement, values or None)

    def last_sweep(self) -> datetime | None:
        """Return the mark of the last complete sweep."""
        with psycopg.connect(self.url.replace("+psycopg", "")) as connection:
            row = connection.execute("SELECT max(completed_at) FROM sweeps").fetchone()
        return row[0] if row is not None else None

    def queue(self, num: int) -> None:
        """Leave exactly `num` runs queued."""
        self.execute("UPDATE runs SET status = 'cancelled', due_at = NULL WHERE status = 'queued'")
        self.execute("DELETE FROM runs WHERE id LIKE 'run_copy%'")
        if num:
            with self.client() as client:
                client.post("/v1/runs", json=spec_body()).raise_for_status()
            self.execute(COPIES, num - 1)
        self.execute("VACUUM ANALYZE runs")
        # A server that has run for a while reuses the segments of its log; a new one fills each of
        # the next with 16 MB of zeros first, and all submissions wait for it.
        for _ in range(SEGMENTS):
            self.execute("SELECT pg_logical_emit_message(false, 'benchmark', '')")
            self.execute("SELECT pg_switch_wal()")
        self.execute("CHECKPOINT")

    def cpu_s(self) -> dict[str, dict[int, float]]:
        """CPU seconds of each process, by name of its tree and pid."""
        return {name: dict(_times(pid)) for name, pid in self.trees.items()}


def _times(pid: int) -> Iterator[tuple[int, float]]:
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        yield process.pid, times.user + times.system


def used(
    before: dict[str, dict[int, float]], after: dict[str, dict[int, float]]
) -> dict[str, float]:
    """Return the CPU seconds between two readings, by tree; of processes that are still there."""
    return {
        name: sum(seconds - before[name].get(pid, 0.0) for pid, seconds in times.items())
        for name, times in after.items()
    }


def measure_posts(bench: Bench, connections: int, requests: int) -> dict[str, float]:
    """Submit from so many connections at once; return times of the answers and CPU per request."""
    request = post("/v1/runs", json.dumps(spec_body()).encode(), port=bench.port, key=KEY)
    closed_loop(bench.port, request, connections=connections, requests=WARM_UP)
    before, load = bench.cpu_s(), os.getloadavg()[0]
    times = closed_loop(bench.port, request, connections=connections, requests=requests)
    times.sort()
    spent = used(before, bench.cpu_s())
    num = len(times)
    return {
        "requests": len(times),
        "p50_ms": round(statistics.median(times), 1),
        "p99_ms": round(times[min(len(times) - 1, int(0.99 * len(times)))], 1),
        "api_cpu_ms": round(1000.0 * spent["api"] / num, 2),
        "postgres_cpu_ms": round(1000.0 * spent["postgres"] / num, 2),
        "load": round(load, 1),
    }


def measure_waiting(bench: Bench, seconds: float) -> dict[str, float]:
    """Let the queue wait; return the share of a core that each process used.

    And how many sweeps were completed meanwhile: a starved worker would use little.
    """
    time.sleep(SETTLE_S)
    before, began, load = bench.cpu_s(), time.perf_counter(), os.getloadavg()[0]
    marks = set()
    while time.perf_counter() < began + seconds:
        marks.add(bench.last_sweep())
        time.sleep(1.0)
    passed = time.perf_counter() - began
    spent = used(before, bench.cpu_s())
    shares = {name: round(100.0 * spent[name] / passed, 2) for name in ("worker", "postgres")}
    percents = {f"{name}_percent_of_a_core": share for name, share in shares.items()}
    return {**percents, "sweeps": len(marks) - 1, "seconds": round(passed), "load": round(load, 1)}


@contextmanager
def benched() -> Iterator[Bench]:
    """Yield the servers and the API; stop everything."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-queue-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # under root the server runs as nobody
        with postgres(folder) as server:
            migrate(server.url())
            pid = int((server.data / "postmaster.pid").read_text().split()[0])
            bench = Bench(folder, server.url(), pid)
            try:
                bench.start_api()
                yield bench
            finally:
                for process in reversed(bench.processes):
                    stop(process)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    posts: dict[str, dict[str, float]] = {}
    waiting: dict[str, dict[str, float]] = {}
    with benched() as bench:
        for num in (0, DEEP):
            for connections in (1, 16):
                bench.queue(num)
                name = f"{connections} connections, {num} queued"
                posts[name] = measure_posts(bench, connections, options.requests)
                print(name, posts[name], flush=True)
        bench.queue(0)
        bench.start_worker()
        for num in (0, WAITING):
            bench.queue(num)
            waiting[f"{num} queued"] = measure_waiting(bench, options.seconds)
            print(num, waiting[f"{num} queued"], flush=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    facts = {"posts": posts, "waiting": waiting, "machine": machine}
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
