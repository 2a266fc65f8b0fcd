"""Kills a trainer while it saves, hundreds of times, and resumes it each time.

    OMP_NUM_THREADS=1 .venv-trainer/bin/python benchmarks/trainer/kills.py --kills 200

One deterministic run of a random tiny model that saves after every step. Each attempt resumes from
`latest` and is killed (SIGKILL, with the process that tries its checkpoints) at a random moment
after it began a save. Counted are the attempts whose resumed checkpoint had not been qualified
before training went on, and events of the run that contradict each other. Both must be 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from hillclimb.protocol.rundir import QUALIFIED
from tests.trainer.fixtures.short_run import ShortRun
from trainer.jobs.train.checkpoints import find_latest
from trainer.jobs.train.qualification.process import TrialProcess
from trainer.jobs.train.qualification.server import die_with, serve
from trainer.jobs.train.qualification.trial import run_trial  # noqa: F401 - the forks have it then
from trainer.learners.rank import LearnerRank  # noqa: F401 - the forks have it then

SECTIONS: dict[str, dict[str, Any]] = {
    "schedule": {"total_steps": 100_000},
    "checkpoints": {"interval": 1, "keep_last": 2, "qualify": True},
    "eval": {"before_training": False, "interval": 0},
}
LONGEST_S = 3.0
"""Latest kill after the beginning of a save (seconds): a trial takes about one."""


class ForkedTrials(TrialProcess):
    """The process for trials as a fork of this one, which has imported everything."""

    def start(self) -> None:
        """Fork it if it does not run."""
        if self._process is not None:
            return
        requests, answers = os.pipe(), os.pipe()
        parent = os.getpid()
        if os.fork() == 0:
            die_with(parent)
            os.close(requests[1])
            with os.fdopen(requests[0]) as lines, os.fdopen(answers[1], "w") as out:
                serve(lines, out)
            os._exit(0)
        self._process = subprocess.Popen(
            ["sleep", "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._process.stdin = os.fdopen(requests[1], "w")
        self._process.stdout = os.fdopen(answers[0])


def attempt(root: Path, number: int) -> int:
    """Fork an attempt that trains until it is killed; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setsid()
    run = ShortRun(root, "run_kills", **SECTIONS)
    try:
        asyncio.run(run.train(number, resume_from=find_latest(run.store, run.run_id)))
    finally:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main() -> None:
    """Run it and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(json.dumps(measure(Path(folder), options.kills, random.Random(options.seed))))
        except SystemExit:
            print(Path(folder, "log").read_text()[-3000:])
            raise


def measure(root: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """Kill `kills` attempts and return what was counted."""
    counts: Counter[str] = Counter()
    steps = []
    for number in range(1, kills + 2):
        events = root / "runs" / "run_kills" / f"attempt-{number}" / "events.jsonl"
        pid = attempt(root, number)
        started = wait_for(events, pid, "trainer.started")
        resumed = started["resumed_from_step"]
        if number > 1:
            is_qualified = resumed is not None and bool(
                list(
                    (root / "blobs/runs/run_kills/checkpoints").glob(
                        f"global_step_{resumed}/attempt-*/{QUALIFIED}"
                    )
                )
            )
            counts["resumed"] += resumed is not None
            counts["resumed_from_unqualified"] += resumed is not None and not is_qualified
            steps.append(resumed)
        wait_for(events, pid, "phase.started", phase="checkpoint")
        time.sleep(rng.uniform(0.0, LONGEST_S))
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        counts[last_of_saving(events)] += 1
    lost = sum(
        later is None or (earlier is not None and later < earlier)
        for earlier, later in pairwise(steps)
    )
    return dict(counts) | {"kills": kills, "steps_lost_to_a_kill": lost}


def last_of_saving(events: Path) -> str:
    """Name the stage of saving in which the kill came, by the last of its events."""
    kinds = [event["type"] for event in read(events)]
    for kind in reversed(kinds):
        if kind in ("checkpoint.saved", "checkpoint.qualified", "checkpoint.deleted"):
            return f"killed_after_{kind}"
    return "killed_before_the_first_was_saved"


def wait_for(events: Path, pid: int, kind: str, **fields: str) -> dict[str, Any]:
    """Wait until the attempt has emitted such an event."""
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        for event in read(events):
            if event["type"] == kind and all(event[name] == fields[name] for name in fields):
                return event
        if os.waitpid(pid, os.WNOHANG)[0]:
            raise SystemExit(f"the attempt ended before {kind}")
        time.sleep(0.02)
    raise SystemExit(f"no {kind} in 120 s")


def read(events: Path) -> list[dict[str, Any]]:
    """Return the whole lines of an attempt's events."""
    if not events.exists():
        return []
    lines = events.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    TrialProcess.start = ForkedTrials.start  # type: ignore[method-assign]
    main()
