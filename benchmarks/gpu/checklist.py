"""The first minutes on a GPU: what is right, what a new shape costs, how fast, how exact.

    python -m benchmarks.gpu.checklist A --out results.jsonl    # a block: A, B, C, D, or E
    python -m benchmarks.gpu.checklist A B C D --rehearse       # on a CPU, at the size of a toy

Block E repeats what failed. Each case is a line of JSON, written when it is there; a second call
with the same file goes on after the checks that have ended. A block has its own time limit. The
exit status is 1 if a check failed or what should be equal is not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from benchmarks.gpu import sampling, shapes, speed
from benchmarks.gpu.right import correctness
from benchmarks.gpu.setting import Check, Figures, Setting, clear

LIMITS_S = {"A": 200.0, "B": 90.0, "C": 240.0, "D": 600.0, "E": 600.0}
"""Seconds of a block, its imports not counted: A, B and C together nine minutes of a device. On a
bare image each start of vLLM in D takes one to two."""
CHECKS: dict[str, dict[str, Check]] = {
    "A": correctness.CHECKS,
    "B": shapes.CHECKS,
    "C": speed.CHECKS,
    "D": sampling.CHECKS,
}
ENDED, DIFFERENT, FAILED, LATE = "ended", "different", "failed", "late"


class TimeIsUp(Exception):
    """The time of the block is up; the check is repeated by the next call."""


@dataclass
class Results:
    """Lines of a file, and those that this call adds."""

    path: Path | None
    verdicts: dict[str, str] = field(default_factory=dict)
    """The last verdict on each check."""

    @classmethod
    def of(cls, path: Path | None, earlier: Path | None) -> Results:
        """Read the verdicts of earlier calls; a line that was cut off is left out."""
        results = cls(path)
        for each in (earlier, path):
            for line in each.read_text().splitlines() if each and each.exists() else ():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if "verdict" in entry:
                    results.verdicts[entry["check"]] = entry["verdict"]
        return results

    def add(self, **entry: Any) -> None:
        """Write a line at once, to the file and to the output."""
        line = json.dumps(entry)
        print(line, flush=True)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(line + "\n")
        if "verdict" in entry:
            self.verdicts[entry["check"]] = entry["verdict"]

    def waiting(self, block: str, only: Sequence[str]) -> dict[str, Check]:
        """Return the checks that a block still has to run, of `only` these unless it is empty."""
        left = self._waiting(block)
        return {name: check for name, check in left.items() if not only or name in only}

    def _waiting(self, block: str) -> dict[str, Check]:
        if block == "E":
            every = {name: each for checks in CHECKS.values() for name, each in checks.items()}
            again = (DIFFERENT, FAILED, LATE)
            return {name: each for name, each in every.items() if self.verdicts.get(name) in again}
        return {
            name: each for name, each in CHECKS[block].items() if self.verdicts.get(name) != ENDED
        }


def run_block(checks: dict[str, Check], setting: Setting, results: Results, limit_s: float) -> None:
    """Run the checks of a block until its time is up."""
    ends = time.monotonic() + limit_s
    for name, check in checks.items():
        left = ends - time.monotonic()
        if left <= 0.0:
            results.add(check=name, verdict=LATE, seconds=0.0)
            continue
        clear(setting.device)
        started = time.monotonic()
        verdict = run_check(name, check, setting, results, left)
        seconds = round(time.monotonic() - started, 2)
        results.add(check=name, verdict=verdict, seconds=seconds)


def run_check(name: str, check: Check, setting: Setting, results: Results, limit_s: float) -> str:
    """Write the cases of a check as they come; return the verdict on it."""
    verdict = ENDED
    try:
        with time_limit(limit_s):
            for case, figures in check(setting):
                results.add(check=name, case=case, **figures)
                if not is_right(figures):
                    verdict = DIFFERENT
    except TimeIsUp:
        return LATE
    except Exception as error:  # noqa: BLE001 - the edge of a check: the others are still to be run
        traceback.print_exc()
        results.add(check=name, error=f"{type(error).__name__}: {error}"[:2000])
        return FAILED
    return verdict


def is_right(figures: Figures) -> bool:
    """Tell whether everything that should be equal is."""
    return all(value for name, value in figures.items() if name.startswith("is_"))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUp` in the block after so long; a kernel under way ends first."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the blocks; return 1 if a check failed, differed or was not reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("blocks", nargs="+", choices=sorted(LIMITS_S), metavar="BLOCK")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, at the size of a toy")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, help="lines are added to this file")
    parser.add_argument("--earlier", type=Path, help="a file of an earlier call elsewhere")
    parser.add_argument("--limit-s", type=float, help="seconds of each block")
    parser.add_argument("--only", nargs="+", default=[], metavar="CHECK")
    given = parser.parse_args(arguments)
    device = "cpu" if given.rehearse else given.device
    if device != "cpu" and not torch.cuda.is_available():
        parser.error("torch finds no GPU on this machine: --rehearse runs the checks on its CPU")
    setting = Setting(device=device, rehearses=given.rehearse)
    results = Results.of(given.out, given.earlier)
    if device != "cpu":
        # What cuBLAS needs to sum in the same order every time; it reads it once.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.cuda.set_device(device)
    blocks = {block: results.waiting(block, given.only) for block in given.blocks}
    for block, checks in blocks.items():
        limit_s = LIMITS_S[block] if given.limit_s is None else given.limit_s
        run_block(checks, setting, results, limit_s)
    tried = [name for checks in blocks.values() for name in checks]
    wrong = sorted({name for name in tried if results.verdicts[name] != ENDED})
    print(f"not as it should be: {', '.join(wrong)}" if wrong else "ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
