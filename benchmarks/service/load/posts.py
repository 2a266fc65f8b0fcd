"""CPU time of POST /v1/runs, of this checkout and of another one, which take turns.

    .venv/bin/python -m benchmarks.service.load.posts [--baseline CHECKOUT] [--rounds N]

One PostgreSQL, one Valkey, and one API process of each checkout, as `hillclimb up` starts them.
Runs are submitted over loopback from 1 and from 16 connections. CPU times are those of the API's
process and of PostgreSQL's while a checkout has its turn, so they say more than wall times where
the machine has other work; each is the median over the turns. The other checkout needs the same
schema.
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
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from benchmarks.service.load.closed_loop import closed_loop, post
from benchmarks.service.load.queue import QUOTAS, WARM_UP
from benchmarks.service.outcomes import PASSWORD, ROOT, postgres
from benchmarks.service.processes import tree_s
from hillclimb.stack.servers.valkey import ValkeyServer
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.fixtures.factories import spec_body
from tests.fixtures.migrated import migrate
from tests.fixtures.postgres import launch, stop

RESULT = ROOT / "benchmarks" / "results" / "posts.json"
KEY = "hc_a-key-for-loopback-that-is-long-enough"
CONNECTIONS = (1, 16)


class Submitting:
    """One API process of a checkout, and clients that submit to it."""

    def __init__(self, checkout: Path, folder: Path, url: str, broker: str) -> None:
        self.port, self.log = find_free(), folder / f"{checkout.parent.name}-{checkout.name}.log"
        variables = {
            "PYTHONPATH": str(checkout),
            "DATABASE_URL": url,
            "REDIS_URL": broker,
            "HILLCLIMB_BLOBS_URL": str(folder / "blobs"),
            "HILLCLIMB_SECRET_KEY": PASSWORD,
            "HILLCLIMB_BOOTSTRAP_KEY": KEY,
            "HILLCLIMB_REQUESTS_PER_MINUTE": "100000000",
        }
        command = [sys.executable, "-m", "api.http.live.serving", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--log-level", "warning"],
                cwd=checkout,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if not wait_until(self.is_ready, deadline_s=120.0):
            raise RuntimeError(self.log.read_text()[-2000:])

    def client(self) -> httpx.Client:
        """Return a client with one connection."""
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def is_ready(self) -> bool:
        """Return True once it answers."""
        try:
            with self.client() as client:
                return client.get("/v1/whoami").is_success
        except httpx.HTTPError:
            return False

    def cpu_s(self) -> float:
        """Return the CPU seconds of the API's process."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def turn(self, connections: int, requests: int, postmaster: int) -> dict[str, float]:
        """Submit so many runs; return what one cost, and how long the answers took (ms)."""
        request = post("/v1/runs", json.dumps(spec_body()).encode(), port=self.port, key=KEY)
        closed_loop(self.port, request, connections=connections, requests=WARM_UP)
        api, database = self.cpu_s(), tree_s(postmaster)
        times = closed_loop(self.port, request, connections=connections, requests=requests)
        times.sort()
        api, database = self.cpu_s() - api, tree_s(postmaster) - database
        return {
            "api_cpu_ms": 1e3 * api / len(times),
            "postgres_cpu_ms": 1e3 * database / len(times),
            "p50_ms": statistics.median(times),
            "p99_ms": times[min(len(times) - 1, int(0.99 * len(times)))],
        }


def compare(sides: dict[str, Submitting], options: Any, postmaster: int) -> dict[str, Any]:
    """Let the sides take turns; return the medians of each, by number of connections."""
    found: dict[str, Any] = {}
    for connections in CONNECTIONS:
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        load = os.getloadavg()[0]
        for number in range(options.rounds):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                turns[name].append(sides[name].turn(connections, options.requests, postmaster))
        medians = {
            name: {key: round(statistics.median(t[key] for t in each), 2) for key in each[0]}
            for name, each in turns.items()
        }
        found[f"{connections} connections"] = {**medians, "load": round(load, 1)}
        print(connections, json.dumps(medians, indent=1), flush=True)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--requests", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    checkouts = {"here": ROOT} | ({"baseline": options.baseline} if options.baseline else {})
    with tempfile.TemporaryDirectory(prefix="hillclimb-posts-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # under root the server runs as nobody
        with postgres(folder) as server:
            migrate(server.url())
            postmaster = int((server.data / "postmaster.pid").read_text().split()[0])
            sides: dict[str, Submitting] = {}
            valkey = ValkeyServer(directory=folder / "valkey", port=find_free(), password=PASSWORD)
            valkey.initialise()
            broker = launch(valkey.command(), cwd=folder, log=folder / "valkey.log")
            try:
                for side, checkout in checkouts.items():
                    sides[side] = Submitting(checkout.resolve(), folder, server.url(), valkey.url)
                with psycopg.connect(server.url(driver="postgresql")) as connection:
                    connection.execute(QUOTAS)
                found = compare(sides, options, postmaster)
            finally:
                for each in (*(side.process for side in sides.values()), broker):
                    stop(each)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    options.out.write_text(json.dumps({**found, "machine": machine}, indent=1) + "\n")


if __name__ == "__main__":
    main()
