"""Print the Python for the environments: of those on PATH that fit, the one that runs code fastest.

    python3 requirements/interpreter.py

A Python that was built without profile-guided optimisation, as pyenv builds it by default, takes
1.4 to 1.7 times as long as Debian's. So the first one on PATH is taken unless a later one is
clearly faster. One fits if it is 3.11 (3.12 where there is no 3.11), can make environments with
pip, and has the headers that compilers of kernels include.

This file itself runs in Python 3.7 and later.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

NAMES = ("python3", "python3.11", "python3.12")
TRIED, FITTING = 11, (11, 12)
"""Minor versions: the one that everything was tried with, and all that fit."""
CLEARLY_FASTER = 1.2
PROBE = """
import ensurepip, os, sys, sysconfig, time, venv
class Counter:
    def __init__(self, value): self.value = value
    def next(self): return self.value + 1
def timed():
    began = time.process_time()
    for value in range(50000): Counter(value).next()
    return time.process_time() - began
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
print(sys.version_info[1], min(timed() for _ in range(5)))
"""
"""Prints the minor version and the CPU seconds of a loop; fails where something is missing."""


class Measured(NamedTuple):
    """A Python that fits, with the CPU seconds that `PROBE` took in it."""

    program: str
    minor: int
    seconds: float


def main() -> None:
    """Print a path; `python3` where none fits, for pip to say what it needs."""
    measured = [each for each in map(probe, candidates(os.environ["PATH"])) if each]
    print(choose(measured) or "python3")


def candidates(path: str) -> list[str]:
    """Return the programs on `path` by the names of a Python, in its order, each file once."""
    programs = {}
    for folder in path.split(os.pathsep):
        for program in (Path(folder) / name for name in NAMES):
            if os.access(program, os.X_OK):
                programs.setdefault(program.resolve(), str(program))
    return list(programs.values())


def probe(program: str) -> Measured | None:
    """Measure a Python; None for one that does not fit."""
    try:
        done = subprocess.run(
            [program, "-I", "-c", PROBE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    minor, seconds = done.stdout.split()
    return Measured(program, int(minor), float(seconds)) if int(minor) in FITTING else None


def choose(measured: list[Measured]) -> str | None:
    """Return the first program that no later one is clearly faster than; None if there is none."""
    best: Measured | None = None
    for each in [each for each in measured if each.minor == TRIED] or measured:
        if best is None or best.seconds > CLEARLY_FASTER * each.seconds:
            best = each
    return best and best.program


if __name__ == "__main__":
    main()
