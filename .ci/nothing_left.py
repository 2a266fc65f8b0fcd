"""Fails when a process of this checkout's stack is still alive: the demo must leave none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil


def processes_of(checkout: Path) -> list[psutil.Process]:
    """Return live processes, other than our own ancestors, whose command names `checkout`."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = " ".join(process.info["cmdline"] or ())
        home = (process.info["environ"] or {}).get("HILLCLIMB_STATE_DIR", "")
        if process.pid not in own and (f"{checkout}/.venv" in words or str(checkout) in home):
            found.append(process)
    return found


def main() -> int:
    """Print what is left; 1 if anything is."""
    left = processes_of(Path(__file__).resolve().parent.parent)
    for process in left:
        print(f"left behind: {process.pid} {' '.join(process.cmdline())}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
