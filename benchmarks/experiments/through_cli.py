"""Experiments through the command line, as a researcher makes them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from typing import Any

POLL_S = 5.0
OPEN = ("accepted", "running")


def wait(key: str, timeout_h: float) -> Counter[str]:
    """Wait until every run has ended; return the numbers of runs by state."""
    deadline = time.monotonic() + 3600.0 * timeout_h
    last = ""
    while True:
        runs = experiment(["show", key])["runs"]
        states = Counter(run["state"] for run in runs)
        line = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        if line != last:
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
            last = line
        if not any(states[state] for state in OPEN):
            return states
        if time.monotonic() > deadline:
            raise SystemExit(f"after {timeout_h:g} h: {line}")
        time.sleep(POLL_S)


def experiment(command: list[str]) -> dict[str, Any]:
    """Return the answer of an `experiment` command."""
    answer: dict[str, Any] = json.loads(cli(["experiment", *command, "--json"]).stdout)
    return answer


def cli(command: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of `hillclimb`.

    Raises:
        SystemExit: It failed, and `check` is true.
    """
    done = subprocess.run(
        [sys.executable, "-m", "hillclimb.cli", *command],
        check=False,
        capture_output=True,
        text=True,
    )
    if check and done.returncode:
        raise SystemExit(f"hillclimb {' '.join(command)}: {done.stderr.strip()}")
    return done
