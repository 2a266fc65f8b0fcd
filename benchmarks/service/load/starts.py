"""Starts of API, worker and trainer in several checkouts: seconds and CPU until each is ready.

    .venv/bin/python -m benchmarks.service.load.starts TREE TREE [--rounds N] [--out FILE]

Each tree has both of its environments. In each round every tree in turn starts `hillclimb up` on a
state directory of its own and, after it stopped, a trainer of one tiny policy. The API is ready
when it answers `/v1/health/ready`, the worker when it logs so, the trainer after its first step.
The first round fills the disk's cache and is not counted. Ratios are those of the medians to the
first tree's: absolute seconds are those of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks.service.processes import tree_s

LIMIT_S = 180.0
PERIOD_S = 0.05
WORKER_READY = re.compile(r"hillclimb@\S+ ready\.$", re.MULTILINE)
FIRST_STEP = "step 1/"
SPEC = """
import importlib, json, sys
from pathlib import Path
for name in ("tests.trainer.jobs.test_process", "tests.trainer.test_process"):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    break
lengths = {**module.LENGTHS, "max_generate_length": 16, "n_samples_per_prompt": 2}
spec = module.a_spec(
    Path(sys.argv[1]),
    rollout=lengths,
    environment={"max_turns": 1},
    eval={"before_training": False, "interval": 0},
    checkpoints={"interval": 1000},
    schedule={"total_steps": 1000},
)
Path(sys.argv[1], "spec.json").write_text(json.dumps(spec))
"""
"""Writes the spec of a run that the tests of either layout of the tree have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A process's way from its start to where it is ready."""

    wall_s: float
    cpu_s: float
    """Of the process and its children."""


def await_start(process: psutil.Process, ready: Callable[[], bool]) -> Start:
    """Return the start of a process once `ready`; raises TimeoutError, or that it ended."""
    began = boot_time_of(process)
    while (wall_s := time.clock_gettime(time.CLOCK_BOOTTIME) - began) < LIMIT_S:
        if process.status() == psutil.STATUS_ZOMBIE:
            break
        if ready():
            return Start(wall_s=wall_s, cpu_s=tree_s(process.pid))
        time.sleep(PERIOD_S)
    raise TimeoutError(f"process {process.pid} ended, or was not ready within {LIMIT_S} s")


def boot_time_of(process: psutil.Process) -> float:
    """Return when a process started (seconds since the machine did, to a hundredth)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def find_process(root: psutil.Process, *words: str) -> psutil.Process:
    """Return the descendant of `root` whose command has these words; raises TimeoutError."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        for each in root.children(recursive=True):
            try:
                command = " ".join(each.cmdline())
            except psutil.NoSuchProcess:
                continue
            if all(word in command for word in words):
                return each
        time.sleep(PERIOD_S)
    raise TimeoutError(f"no process of {words} within {LIMIT_S} s")


def answers(port: str) -> bool:
    """Tell whether the API is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/health/ready", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def stack_starts(tree: Path, home: Path) -> Iterator[tuple[str, Start]]:
    """Start a stack and stop it; yield the starts of its API and of its worker.

    They start side by side, so each has a thread that looks at it.
    """
    with (home / "up.log").open("w") as log:
        up = subprocess.Popen(
            [tree / ".venv/bin/hillclimb", "up"],
            env={**os.environ, "HILLCLIMB_HOME": str(home)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        root = psutil.Process(up.pid)
        parts = {"api": api_start, "worker": worker_start}
        with ThreadPoolExecutor(len(parts)) as pool:
            found = {name: pool.submit(start, root, home) for name, start in parts.items()}
            for name, future in found.items():
                yield name, future.result()
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(LIMIT_S)


def api_start(root: psutil.Process, home: Path) -> Start:
    """Return the start of the API of the stack of `root`."""
    api = find_process(root, "api.", "--port")
    command = api.cmdline()
    port = command[command.index("--port") + 1]
    return await_start(api, lambda: answers(port))


def worker_start(root: psutil.Process, home: Path) -> Start:
    """Return the start of the worker of the stack of `root`, whose state is in `home`."""

    def logged() -> bool:
        return any(WORKER_READY.search(log.read_text()) for log in home.rglob("worker*.log*"))

    return await_start(find_process(root, "celery", "hillclimb@"), logged)


def trainer_start(tree: Path, home: Path) -> Start:
    """Start a trainer without a service, and stop it after its first step."""
    python = tree / ".venv-trainer/bin/python"
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree)}
    subprocess.run([python, "-c", SPEC, home], env=environ, cwd=tree, check=True)
    run_dir = home / "runs" / "run_1"
    (run_dir / "attempt-1").mkdir(parents=True, exist_ok=True)
    command = [python, "-m", "trainer", "run", "--threads", "1", "--spec", home / "spec.json"]
    log = home / "trainer.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, "--run-dir", run_dir], env=environ, cwd=tree, stderr=stderr
        )
    try:
        return await_start(psutil.Process(process.pid), lambda: FIRST_STEP in log.read_text())
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def measure(trees: list[Path], rounds: int) -> dict[str, dict[str, list[Start]]]:
    """Return every counted start by tree and part."""
    found: dict[str, dict[str, list[Start]]] = {}
    for number in range(rounds + 1):
        for tree in trees:
            with tempfile.TemporaryDirectory(prefix="hc-starts-") as folder:
                home = Path(folder)
                home.chmod(0o755)
                starts = [*stack_starts(tree, home), ("trainer", trainer_start(tree, home))]
            for part, start in starts if number else ():
                found.setdefault(str(tree), {}).setdefault(part, []).append(start)
                print(f"{tree.name} {part}: {start.wall_s:.2f} s, {start.cpu_s:.2f} s of CPU")
    return found


def summary(found: dict[str, dict[str, list[Start]]]) -> dict[str, object]:
    """Return medians by tree and part, and their ratios to the first tree's."""
    medians = {
        tree: {
            part: {
                "wall_s": round(median(each.wall_s for each in starts), 2),
                "cpu_s": round(median(each.cpu_s for each in starts), 2),
                "rounds": len(starts),
            }
            for part, starts in parts.items()
        }
        for tree, parts in found.items()
    }
    first = next(iter(medians.values()))
    ratios = {
        tree: {
            part: {name: round(values[name] / first[part][name], 2) for name in ("wall_s", "cpu_s")}
            for part, values in parts.items()
        }
        for tree, parts in medians.items()
    }
    return {"medians": medians, "ratios_to_the_first": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    trees = [tree.resolve() for tree in options.trees]
    text = json.dumps(summary(measure(trees, options.rounds)), indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
