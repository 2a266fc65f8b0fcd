"""Registers 20,557 synthetic tasks through the real API, and makes their split a second time.

    python benchmarks/datasets/register.py [--tasks 20557] [--out benchmarks/results/datasets.json]

The embedded stack is started in a temporary directory. One request uploads the file of
`synthetic.py` (107 MB): the answer has the version's numbers per environment and its lint. While it
is worked on, a second client asks for the API's health twenty times a second, and before it as
well: the difference says whether anybody else had to wait. Memory is sampled every 20 ms over the
API and its children.

Then the split is made again: by a process with another hash seed and locale from the same file
shuffled, as a second machine would. The digest covers rows and split.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import synthetic

from api.datasets.request import VersionRequest
from api.datasets.work.process import JOB, RESULT
from hillclimb.client.client import Client
from hillclimb.stack.control import down, status, up_detached
from hillclimb.stack.options import CODE_ROOT, StackOptions
from hillclimb.stack.state.connection import connection

SAMPLE_S = 0.02
PING_S = 0.05
MB = 1_000_000
SEED = 7
NUM_IDLE = 60


@dataclass(slots=True)
class Watch:
    """What is seen from outside while a request is worked on."""

    api: psutil.Process
    url: str
    peak_all: int = 0
    peak_api: int = 0
    peak_child: int = 0
    cpu_child_s: float = 0.0
    cpu_api_s: float = 0.0
    """Processor's time, which other processes on the machine do not lengthen."""
    idle_s: list[float] = field(default_factory=list)
    pings_s: list[float] = field(default_factory=list)

    def rest(self) -> None:
        """Ask for the API's health while nothing else is asked, to compare with."""
        for _ in range(NUM_IDLE):
            time.sleep(self._ping())
        self.idle_s, self.pings_s = self.pings_s, []

    @contextmanager
    def on(self) -> Iterator[None]:
        ended, began = threading.Event(), sum(self.api.cpu_times()[:2])
        jobs = (self._sample, self._ping)
        threads = [threading.Thread(target=_repeat, args=(job, ended)) for job in jobs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.cpu_api_s = sum(self.api.cpu_times()[:2]) - began
            ended.set()
            for thread in threads:
                thread.join()

    def figures(self) -> dict[str, Any]:
        pings, idle = sorted(self.pings_s), sorted(self.idle_s)
        return {
            "peak_rss_mb_together": round(self.peak_all / MB),
            "peak_rss_mb_api": round(self.peak_api / MB),
            "peak_rss_mb_process": round(self.peak_child / MB),
            "cpu_s_api": round(self.cpu_api_s, 1),
            "cpu_s_process": round(self.cpu_child_s, 1),
            "health_ms_median_before": round(1000 * idle[len(idle) // 2], 1),
            "health_ms_slowest_before": round(1000 * idle[-1], 1),
            "health_ms_median": round(1000 * pings[len(pings) // 2], 1),
            "health_ms_slowest": round(1000 * pings[-1], 1),
        }

    def _sample(self) -> float:
        try:
            api, found = self.api.memory_info().rss, self.api.children(recursive=True)
            children = [each.memory_info().rss for each in found]
            for each in found:
                self.cpu_child_s = max(self.cpu_child_s, sum(each.cpu_times()[:2]))
        except psutil.NoSuchProcess:
            return SAMPLE_S
        self.peak_api = max(self.peak_api, api)
        self.peak_child = max(self.peak_child, *children, 0)
        self.peak_all = max(self.peak_all, api + sum(children))
        return SAMPLE_S

    def _ping(self) -> float:
        began = time.perf_counter()
        httpx.get(f"{self.url}/v1/health", timeout=60, trust_env=False).raise_for_status()
        self.pings_s.append(time.perf_counter() - began)
        return PING_S


def _repeat(job: Callable[[], float], ended: threading.Event) -> None:
    while not ended.wait(job()):
        pass


def register(options: StackOptions, file: Path) -> dict[str, Any]:
    """Register the file under two names; return what it took and what came out."""
    found = connection(options.state_dir)
    service = status(options.state_dir).services["api"].process
    assert found is not None
    assert service is not None
    watch = Watch(psutil.Process(service.pid), found.url)
    watch.rest()
    with Client(found) as client:
        with watch.on():
            began = time.perf_counter()
            version = client.datasets.create("synthetic", file)
            request_s = time.perf_counter() - began
        began = time.perf_counter()
        again = client.datasets.create("synthetic", file)
        again_s = time.perf_counter() - began
        began = time.perf_counter()
        client.datasets.tasks("synthetic", search="_1768000020", limit=50)
        page_s = time.perf_counter() - began
    assert again.id == version.id
    return {
        "request_s": round(request_s, 1),
        "the_same_again_s": round(again_s, 1),
        "page_of_tasks_s": round(page_s, 2),
        **watch.figures(),
        "rows": version.num_read,
        "tasks": version.num_tasks,
        "train": version.num_train,
        "eval": version.num_eval,
        "findings": len(version.lint),
        "digest": version.digest,
    }


def elsewhere(file: Path, folder: Path) -> str:
    """Return the digest that another process makes of the shuffled file."""
    rows = json.loads(file.read_bytes())["tasks"]
    first: dict[str, Any] = {}
    for row in rows:
        first.setdefault(row["key"], row)
    shuffled = list(first.values())
    random.Random(SEED).shuffle(shuffled)
    synthetic.write(folder / "source", iter(shuffled), as_lines=True)
    job = {
        "options": VersionRequest().prepare_options(),
        "exclusions": [],
        "lineage": [],
        "max_unpacked_mb": 2048,
        "now": "2031-01-01T00:00:00+00:00",
    }
    (folder / JOB).write_text(json.dumps(job))
    environment = os.environ | {"PYTHONHASHSEED": "4321", "LC_ALL": "POSIX", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "api.datasets.work.job", "build", str(folder), "4096"]
    subprocess.run(command, cwd=CODE_ROOT, env=environment, check=True)
    digest: str = json.loads((folder / RESULT).read_text())["digest"]
    return digest


def main() -> int:
    """Measure, print, and write the figures; exit code 1 when the split differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=synthetic.NUM_TASKS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hillclimb-register-") as name:
        folder = Path(name).resolve()
        file = folder / "tasks.json"
        synthetic.write(file, synthetic.tasks(given.tasks, 3))
        options = StackOptions(state_dir=folder / "state", api_port=0)
        try:
            up_detached(options, say=print)
            load = os.getloadavg()[0]
            figures = {"file_mb": round(file.stat().st_size / MB, 1), **register(options, file)}
        finally:
            down(options.state_dir, say=print)
        (folder / "elsewhere").mkdir()
        figures["same_digest_elsewhere_and_shuffled"] = figures["digest"] == elsewhere(
            file, folder / "elsewhere"
        )
    figures |= {"cores": os.cpu_count(), "load_before": round(load, 1)}
    figures["machine"] = f"{platform.machine()}, Python {platform.python_version()}"
    print(json.dumps(figures, indent=2))
    if given.out:
        given.out.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if figures["same_digest_elsewhere_and_shuffled"] else 1


if __name__ == "__main__":
    sys.exit(main())
