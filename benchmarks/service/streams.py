"""Delays of a run's events at N clients that follow it, with the generator's own lag apart.

    .venv/bin/python -m benchmarks.service.streams [--clients N ...] [--seconds N] [--rate N]

PostgreSQL runs as `hillclimb up` starts it, and the real application in a process of its own, under
uvicorn as in `hillclimb up`. The generator pushes one event per request at the rate; an event
carries the time at which it was due. One process with epoll reads all streams and notes when each
frame arrived. A delay counts from the start of the event's POST to its arrival at a client; the
generator's lag, from when it was due to when its POST began, stands apart. Writes
`benchmarks/results/streams.json`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from api.tables import Project
from api.tables.database import Database
from benchmarks.service.ingest import launch
from benchmarks.service.outcomes import postgres
from hillclimb.protocol.events import IngestBatch, RunWarning
from hillclimb.stack.servers.postgres import PostgresServer
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.serving import SECRET, make_key
from tests.api.fixtures.stage import Stage
from tests.fixtures.migrated import migrate

RESULT = Path(__file__).parents[1] / "results" / "streams.json"
CLIENTS = (1, 100, 500, 1_000)
DRAIN_S = 10.0
MARK = b'"message":"at '


@dataclass(slots=True)
class Stream:
    """One client's connection, and the part of a frame that has arrived."""

    client: socket.socket
    rest: bytes = b""
    is_open: bool = False

    def read(self, delays: list[float]) -> bool:
        """Note the delays of the frames that have arrived; False at the end of the stream."""
        arrived = time.time()
        chunk = self.client.recv(65_536)
        *frames, self.rest = (self.rest + chunk).split(b"\n\n")
        for frame in frames:
            self.is_open = True
            place = frame.find(MARK)
            if place >= 0:
                delays.append(arrived - float(frame[place + len(MARK) :].split(b" ", 1)[0]))
        return bool(chunk)


def read_all(port: int, path: str, key: str, num_clients: int, pipe: Connection) -> None:
    """Read all streams in one process; send `ready`, then the delays once `pipe` has a message."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    selector = selectors.DefaultSelector()
    streams: list[Stream] = []
    for _ in range(num_clients):
        stream = Stream(socket.create_connection(("127.0.0.1", port)))
        stream.client.sendall(request)
        selector.register(stream.client, selectors.EVENT_READ, stream)
        streams.append(stream)
    delays: list[float] = []
    is_ready = False
    while not pipe.poll():
        for ready, _ in selector.select(timeout=0.1):
            if not ready.data.read(delays):
                selector.unregister(ready.fileobj)
        if not is_ready and all(stream.is_open for stream in streams):
            is_ready = True
            pipe.send("ready")
    pipe.send(delays)


@contextmanager
def api(server: PostgresServer, folder: Path) -> Iterator[tuple[int, int]]:
    """Yield port and process id of the application."""
    port = find_free()
    environment = os.environ | {
        "DATABASE_URL": server.url(),
        "REDIS_URL": "redis://127.0.0.1:1",
        "HILLCLIMB_BLOBS_URL": str(folder / "blobs"),
        "HILLCLIMB_SECRET_KEY": SECRET,
        "HILLCLIMB_REQUESTS_PER_MINUTE": "1000000",
    }
    command = [sys.executable, "-m", "uvicorn", "api.app:create_app", "--factory"]
    command += ["--port", str(port), "--log-level", "warning", "--timeout-graceful-shutdown", "1"]
    with subprocess.Popen(command, env=environment) as process:
        try:
            if not wait_until(lambda: _answers(port), deadline_s=120.0):
                raise RuntimeError("the application did not start")
            yield port, process.pid
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v1/health").is_success
    except httpx.TransportError:
        return False


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process (s)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process (KiB)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def push(port: int, token: str, seconds: float, rate: float) -> list[float]:
    """Push an event per request at the rate; return the lag of each (s)."""
    lags = []
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:
        began = time.time()
        for number in range(int(seconds * rate)):
            due = began + number / rate
            time.sleep(max(0.0, due - time.time()))
            lags.append(time.time() - due)
            place = {"trainer_seq": number + 1, "at": datetime.now(UTC), "step": number}
            message = f"at {time.time():.6f} {'x' * 200}"
            event = RunWarning(**place, code="benchmark", message=message)
            body = IngestBatch(events=(event,)).model_dump_json()
            url = f"http://127.0.0.1:{port}/v1/ingest"
            client.post(url, content=body).raise_for_status()
    return lags


def percentile_ms(values: Sequence[float], share: float) -> float:
    """Return the value below which this share lies (ms)."""
    ordered = sorted(values)
    return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)


def follow(stage: Stage, server: PostgresServer, folder: Path, num: int, wanted: Any) -> Any:
    """Return what one number of clients saw, in a fresh process of the application."""
    with api(server, folder) as (port, pid):
        plan = launch(stage, f"streams-{num}-{time.monotonic_ns()}")
        key = make_key(stage.database, PROJECT)
        path = f"/v1/runs/{plan.run_id}/events/stream"
        rest = rss_kib(pid)
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        reader = multiprocessing.get_context("spawn").Process(
            target=read_all, args=(port, path, key, num, theirs)
        )
        reader.start()
        assert ours.recv() == "ready"
        began, cpu = time.monotonic(), cpu_s(pid)
        lags = push(port, plan.attempt_token, wanted.seconds, wanted.rate)
        elapsed = time.monotonic() - began
        time.sleep(min(DRAIN_S, 1.0 + num / 200))
        used, memory = cpu_s(pid) - cpu, rss_kib(pid)
        ours.send("over")
        delays: list[float] = ours.recv()
        reader.join()
    events = len(lags)
    return {
        "events": events,
        "events_per_s": round(events / elapsed, 1),
        "delivered": len(delays),
        "expected": events * num,
        "p50_ms": percentile_ms(delays, 0.5),
        "p99_ms": percentile_ms(delays, 0.99),
        "generator_lag_p99_ms": percentile_ms(lags, 0.99),
        "api_cpu_us_per_delivery": round(1e6 * used / max(1, len(delays)), 1),
        "api_share_of_a_core": round(used / elapsed, 2),
        "kib_per_client": round((memory - rest) / num, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of pushing")
    parser.add_argument("--rate", type=float, default=20.0, help="events per second")
    wanted = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, postgres(Path(name)) as server:
        migrate(server.url())
        database = Database(server.url())
        with database.transaction() as session:
            session.merge(Project(id=PROJECT, name=PROJECT))
        for num in wanted.clients:
            results[str(num)] = follow(Stage(database), server, Path(name), num, wanted)
            print(num, results[str(num)], flush=True)
        database.close()
    result = {
        "measured": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "rate": wanted.rate,
        "seconds": wanted.seconds,
        "clients": results,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
