"""Memory of API, worker and PostgreSQL while people and trainers use the service for long.

    .venv/bin/python -m benchmarks.service.load.soak [--minutes M] [--out FILE]

PostgreSQL, Valkey, one API process, one worker and beat run as `hillclimb up` starts them. For so
many minutes, in turns, a client submits runs and cancels them, reads lists, runs, events and
metrics, and ingest gets steps of 219 metrics and 160 rollouts with the token of an attempt. The
proportional set size (PSS) of each tree of processes is taken every `--every` seconds. After that
the largest answers are read once each, and then nothing is asked for two minutes: memory has to be
back near rest. `slope_mb_per_h` is that of the second half, by least squares. Stopped with Ctrl-C
it writes what it has. Disk: about 120 kB for each step, so 1 GB in 20 minutes at most.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.service.load.queue import Bench, benched
from benchmarks.service.outcomes import ROOT
from hillclimb.protocol.events import IngestBatch
from tests.fixtures import factories as make

RESULT = ROOT / "benchmarks" / "results" / "soak.json"
RUNNER = {"name": "soak", "hostname": "soak"}
REST_S = 120.0
PAUSE_S = 0.05
NUM_METRICS, NUM_ROLLOUTS = 219, 160
LARGEST = (
    "/v1/runs?limit=200",
    "/v1/runs/{run}/metrics?names=*",
    "/v1/runs/{run}/events?limit=1000",
)


def memory_mb(bench: Bench) -> dict[str, float]:
    """Return the PSS of each tree of processes (MB)."""
    found = {}
    for name, pid in bench.trees.items():
        total = 0
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
        found[name] = round(total / 1e6, 1)
    return found


class Load:
    """The requests of one round."""

    def __init__(self, bench: Bench, token: str) -> None:
        self.client, self.token = bench.client(), token
        self.runner_id, self.trainer_seq, self.num_requests = "", 0, 0
        self.run_id = self.ask("POST", "/v1/runs", json=make.spec_body())["id"]
        self.attempt_token = self.claim()
        self.push(make.started(1))

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Send a request; return the answer's JSON."""
        self.num_requests += 1
        answer = self.client.request(method, path, **options).raise_for_status()
        return answer.json() if answer.content else None

    def claim(self) -> str:
        """Claim the attempt of the run as a runner; return its token."""
        own = {"headers": {"Authorization": f"Bearer {self.token}"}}
        self.runner_id = self.ask("POST", "/v1/runners", json=RUNNER, **own)["runner_id"]
        end = time.monotonic() + 60.0
        while (plan := self.ask("POST", f"/v1/runners/{self.runner_id}/claim", **own)) is None:
            if time.monotonic() > end:
                raise RuntimeError("the worker scheduled no attempt")
            time.sleep(0.5)
        return str(plan["attempt_token"])

    def push(self, *events: Any) -> None:
        """Ingest events of the trainer."""
        headers = {
            "Authorization": f"Bearer {self.attempt_token}",
            "Content-Type": "application/json",
        }
        content = IngestBatch(events=events).model_dump_json()
        self.ask("POST", "/v1/ingest", content=content, headers=headers)

    def round(self, number: int) -> None:
        """Train a step, look at it, and submit a run that is cancelled."""
        rows = [make.outcome(f"1/{number}/{each}") for each in range(NUM_ROLLOUTS)]
        metrics = {f"policy/figure_{each}": float(number) for each in range(NUM_METRICS)}
        self.push(make.step(number + 1, number, *rows, metrics=metrics))
        run = f"/v1/runs/{self.run_id}"
        series = {"names": "policy/figure_1", "max_points": 500}
        for path, query in (
            ("/v1/runs", {"limit": 50}),
            (run, {}),
            (f"{run}/events", {"limit": 50}),
            (f"{run}/metrics", series),
        ):
            self.ask("GET", path, params=query)
        made = self.ask("POST", "/v1/runs", json=make.spec_body())["id"]
        self.ask("POST", f"/v1/runs/{made}/cancel")


def samples(bench: Bench, load: Load, options: Any) -> Iterator[dict[str, Any]]:
    """Yield the memory as time passes."""
    begun, number, due = time.monotonic(), 0, 0.0
    while (passed := time.monotonic() - begun) < 60 * options.minutes:
        if passed >= due:
            due += options.every
            yield {"s": round(passed), "mb": memory_mb(bench), "rounds": number}
        number += 1
        load.round(number)
        time.sleep(PAUSE_S)


def slope_mb_per_h(taken: list[dict[str, Any]], name: str) -> float:
    """Return the growth of a tree over the second half, by least squares."""
    points = [(each["s"], each["mb"][name]) for each in taken[len(taken) // 2 :]]
    mean_s = sum(s for s, _ in points) / len(points)
    mean_mb = sum(mb for _, mb in points) / len(points)
    spread = sum((s - mean_s) ** 2 for s, _ in points)
    along = sum((s - mean_s) * (mb - mean_mb) for s, mb in points)
    return round(3600 * along / spread, 1) if spread else 0.0


def main() -> None:
    """Start everything, use it, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=15.0)
    parser.add_argument("--rest", type=float, default=REST_S)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    token = "hcr_a-runner-token-for-loopback-that-is-long-enough"
    os.environ["HILLCLIMB_RUNNER_TOKEN"] = token
    taken: list[dict[str, Any]] = []
    with benched() as bench:
        bench.start_worker()
        load = Load(bench, token)
        rest = memory_mb(bench)
        with suppress(KeyboardInterrupt):
            for each in samples(bench, load, options):
                taken.append(each)
                print(each, flush=True)
        with suppress(httpx.HTTPError):
            for path in LARGEST:
                load.ask("GET", path.format(run=load.run_id))
        largest = memory_mb(bench)
        time.sleep(options.rest)
        after = memory_mb(bench)
    facts = {
        "measured": datetime.now(UTC).date().isoformat(),
        "minutes": options.minutes,
        "requests": load.num_requests,
        "slope_mb_per_h": {name: slope_mb_per_h(taken, name) for name in rest},
        "at_rest_mb": rest,
        "before_largest_reads_mb": taken[-1]["mb"],
        "after_largest_reads_mb": largest,
        "after_rest_mb": after,
        "samples": taken,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    print(json.dumps({key: value for key, value in facts.items() if key != "samples"}, indent=1))
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
