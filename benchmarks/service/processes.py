"""Requests per second of one and of two API processes behind one address, and their CPU time.

    .venv/bin/python -m benchmarks.service.processes [--wrk PATH] [--seconds S] [--rounds N]

PostgreSQL, the API with one process and the API with two run as `hillclimb up` starts them. `wrk`
(`apt-get install wrk`), which is written in C, sends from 32 connections; the two take turns.
CPU times are those of the processes themselves. On two cores PostgreSQL and the generator take
from what two processes could use, so each is measured twice: as it is, and with every API process
stopped for most of each 60 ms, as if each had a slow core of its own and the rest of the machine
were PostgreSQL's. `ratio` is of requests per second; `by_cpu` follows from the CPU times alone: how
much more two processes carry until the busier one has used up its core; `possible` is the most
that the CPU times allow on this machine's cores. Medians of rounds. Writes
`benchmarks/results/processes.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.service.outcomes import PASSWORD, ROOT, postgres
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.fixtures.factories import spec_body
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import stop

RESULT = ROOT / "benchmarks" / "results" / "processes.json"
KEY = "hc_a-key-for-loopback-that-is-long-enough"
CONNECTIONS = 32
NUM_RUNS = 60
PERIOD_S, SHARE = 0.06, 0.3
"""A limited API process runs for this share of each period."""
ROUTES = {
    "health": "/v1/health",
    "whoami": "/v1/whoami",
    "run": "/v1/runs/{run_id}",
    "list of 50 runs": "/v1/runs?limit=50",
}
"""Without the database, with authentication alone, and two that people and scripts read."""


class Api:
    """The API with so many processes, on a port of its own."""

    def __init__(self, folder: Path, url: str, processes: int) -> None:
        self.port, self.log = find_free(), folder / f"api-{processes}.log"
        self.processes = processes
        variables = {
            "DATABASE_URL": url,
            "REDIS_URL": "redis://127.0.0.1:1",
            "HILLCLIMB_BLOBS_URL": str(folder / "blobs"),
            "HILLCLIMB_SECRET_KEY": PASSWORD,
            "HILLCLIMB_BOOTSTRAP_KEY": KEY,
            "HILLCLIMB_REQUESTS_PER_MINUTE": "100000000",
            "HILLCLIMB_API_PROCESSES": str(processes),
        }
        command = [sys.executable, "-m", "api.http.live.serving", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.parent = subprocess.Popen(
                [*command, "--log-level", "warning"],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if not wait_until(self.is_ready, deadline_s=120.0):
            raise RuntimeError(self.log.read_text()[-2000:])

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def is_ready(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/v1/whoami").is_success and len(self.serving()) == self.processes
        except httpx.HTTPError:
            return False

    def serving(self) -> list[psutil.Process]:
        """The processes that accept connections."""
        root = psutil.Process(self.parent.pid)
        children = [p for p in root.children() if "spawn_main" in " ".join(p.cmdline())]
        return children or [root]

    def cpu_s(self) -> list[float]:
        return [p.cpu_times().user + p.cpu_times().system for p in self.serving()]


def limited(processes: list[psutil.Process], done: threading.Event) -> None:
    """Let each process run for its share of each period, one after the other; until `done`."""
    while not done.is_set():
        for process in processes:
            process.send_signal(signal.SIGCONT)
        done.wait(PERIOD_S * SHARE)
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        done.wait(PERIOD_S * (1 - SHARE))
    for process in processes:
        process.send_signal(signal.SIGCONT)


@contextmanager
def slowed(api: Api, *, is_slowed: bool) -> Iterator[None]:
    """Slow the API's processes down for the block."""
    if not is_slowed:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=limited, args=(api.serving(), done))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def tree_s(pid: int) -> float:
    """CPU seconds of a server and the processes that it started, the dead ones included."""
    root = psutil.Process(pid)
    dead = root.cpu_times()
    total = dead.children_user + dead.children_system
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def measure(api: Api, wrk: str, path: str, seconds: int, postmaster: int) -> dict[str, Any]:
    """Return what one run of the generator saw and cost."""
    command = [wrk, "-t", "1", "-c", str(CONNECTIONS), "-d", f"{seconds}s", "--timeout", "20s"]
    command += ["-H", f"Authorization: Bearer {KEY}", f"http://127.0.0.1:{api.port}{path}"]
    before, database = api.cpu_s(), tree_s(postmaster)
    generator = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    elapsed = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = [now - then for now, then in zip(api.cpu_s(), before, strict=True)]
    number = re.search(r"(\d+) requests in", text)
    if number is None or number[1] == "0" or "Non-2xx" in text:
        raise RuntimeError(text)
    requests = int(number[1])
    spent = after.ru_utime + after.ru_stime - generator.ru_utime - generator.ru_stime
    return {
        "requests_per_s": requests / elapsed,
        "api_ms": 1e3 * sum(used) / requests,
        "postgres_ms": 1e3 * (tree_s(postmaster) - database) / requests,
        "wrk_ms": 1e3 * spent / requests,
        "busiest_share": max(used) / sum(used),
    }


def middle(rounds: list[dict[str, Any]]) -> dict[str, float]:
    return {name: round(statistics.median(r[name] for r in rounds), 3) for name in rounds[0]}


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)


def compare(pair: tuple[Api, Api], options: Any, path: str, postmaster: int) -> dict[str, Any]:
    """Return medians of one and two processes, as they are and slowed down, with their ratios."""
    found: dict[str, Any] = {}
    for is_slowed in (False, True):
        rounds: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
        for number in range(options.rounds):
            for api in pair if number % 2 else pair[::-1]:
                with slowed(api, is_slowed=is_slowed):
                    seen = measure(api, options.wrk, path, options.seconds, postmaster)
                rounds[api.processes].append(seen)
        one, two = middle(rounds[1]), middle(rounds[2])
        cores = os.cpu_count() or 1
        whole = sum(two[name] for name in ("api_ms", "postgres_ms", "wrk_ms"))
        pairs = list(zip(rounds[1], rounds[2], strict=True))
        found["a slow core for each" if is_slowed else "as it is"] = {
            "one": one,
            "two": two,
            "ratio": _median(b["requests_per_s"] / a["requests_per_s"] for a, b in pairs),
            "by_cpu": _median(a["api_ms"] / (b["api_ms"] * b["busiest_share"]) for a, b in pairs),
            "possible": 2.0 if is_slowed else round(min(2.0, cores * one["api_ms"] / whole), 2),
            "load": round(os.getloadavg()[0], 1),
        }
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wrk", default=shutil.which("wrk") or "wrk")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    load, found = os.getloadavg()[0], {}
    with tempfile.TemporaryDirectory(prefix="hillclimb-processes-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # under root the server runs as nobody
        with postgres(folder) as server:
            migrate(server.url())
            postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
            pair = Api(folder, server.url(), 1), Api(folder, server.url(), 2)
            try:
                with pair[0].client() as client:
                    runs = [client.post("/v1/runs", json=spec_body()) for _ in range(NUM_RUNS)]
                run_id = runs[0].raise_for_status().json()["id"]
                for route, path in ROUTES.items():
                    found[route] = compare(pair, options, path.format(run_id=run_id), postmaster)
                    print(route, json.dumps(found[route], indent=1), flush=True)
            finally:
                for api in pair:
                    stop(api.parent)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, load before {load:.1f}"
    options.out.write_text(json.dumps({"routes": found, "machine": machine}, indent=1) + "\n")


if __name__ == "__main__":
    main()
