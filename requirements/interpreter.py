"""Print the Python for the environments: of those on PATH that fit, the one that runs code fastest.

    python3 requirements/interpreter.py

A Python that was built without profile-guided optimisation, as pyenv builds it by default, took 1.2
to 1.7 times as long as Debian's. So the first one on PATH is taken, or a later one that is clearly
faster than it. One fits if it is CPython 3.11.2 or later, or 3.12 where there is no 3.11, and can
make environments with pip; one that has the headers for compilers goes before those without.

This file itself runs in Python 3.7 and later.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

NAMES = ("python3", "python3.11", "python3.12")
TRIED = 11
"""The minor version that everything was tried with."""
CLEARLY_FASTER = 1.2
ROUNDS = 8
"""One after another, because the speed of a shared machine changes from second to second."""
PROBE = """
import ctypes, ensurepip, os, sqlite3, ssl, sys, sysconfig, time, venv
assert (3, 11, 2) <= sys.version_info < (3, 13) and sys.implementation.name == "cpython"
class Counter:
    def __init__(self, value): self.value = value
    def next(self): return self.value + 1
def timed():
    began = time.process_time()
    for value in range(50000): Counter(value).next()
    return time.process_time() - began
has_headers = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
print("fits", sys.version_info[1], int(has_headers), min(timed() for _ in range(5)))
"""
"""Prints minor version, whether there are headers, and the CPU seconds of a loop."""
NONE_FITS = (
    "No CPython 3.11 (3.11.2 or later) or 3.12 with venv and pip is on PATH: install one"
    " (Debian and Ubuntu: python3.11-venv), or name one by `make PYTHON=...`."
)


class Measured(NamedTuple):
    """A Python that fits, with the CPU seconds that `PROBE` took in it."""

    program: str
    minor: int
    has_headers: bool
    seconds: float


def main() -> None:
    """Print the path, quoted for a shell; `python3`, and on stderr why, where none fits."""
    path = os.environ.get("PATH", os.defpath)
    chosen = choose(measure(candidates(path)))
    if chosen is None:
        print(NONE_FITS, file=sys.stderr)
    print(shlex.quote(chosen or "python3"))


def candidates(path: str) -> list[str]:
    """Return the programs on `path` by the names of a Python, in its order, each file once."""
    programs: dict[Path, str] = {}
    for folder in filter(None, path.split(os.pathsep)):
        for program in (Path(folder) / name for name in NAMES):
            if os.access(program, os.X_OK):
                file = program.resolve()
                # Several names of a version manager may be links to one program, which looks at
                # the name that it was started by.
                key = file if file.name.startswith("python") else program
                programs.setdefault(key, str(program))
    return list(programs.values())


def measure(programs: list[str]) -> list[Measured]:
    """Return those that fit, in their order, each with the fewest seconds of `ROUNDS`."""
    fewest: dict[str, Measured] = {}
    for _ in range(ROUNDS):
        for each in [each for each in map(probe, programs) if each]:
            fewest[each.program] = min(fewest.get(each.program, each), each, key=_seconds)
        programs = list(fewest)
    return list(fewest.values())


def _seconds(python: Measured) -> float:
    return python.seconds


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
    words = done.stdout.decode(errors="replace").split()
    if done.returncode != 0 or len(words) != 4 or words[0] != "fits":
        return None
    return Measured(program, int(words[1]), words[2] == "1", float(words[3]))


def choose(measured: list[Measured]) -> str | None:
    """Return the first program, or a later one that is clearly faster; None if there is none."""
    first = max(map(_preference, measured), default=None)
    best: Measured | None = None
    for each in measured:
        if _preference(each) == first and (
            best is None or best.seconds > CLEARLY_FASTER * each.seconds
        ):
            best = each
    return best and best.program


def _preference(python: Measured) -> tuple[bool, bool]:
    return python.minor == TRIED, python.has_headers


if __name__ == "__main__":
    main()
