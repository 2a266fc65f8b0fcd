"""Fails when the demo leaves something behind: a process of this checkout's stack, or files in RAM.

Ray and vLLM give their processes titles of their own (`ray::EngineActor`), without a path in them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

TITLES = ("ray::", "VLLM::")
MARKS = ("HILLCLIMB_STATE_DIR", "HILLCLIMB_STACK_OWNER")
ROOTS = (Path("/tmp"), Path("/dev/shm"))


def processes_of(checkout: Path) -> list[psutil.Process]:
    """Return live processes, other than our own ancestors, that belong to `checkout`."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ", "cwd"])
        if process.pid not in own and _belongs(process.info, checkout)
    ]


def _belongs(info: dict[str, Any], checkout: Path) -> bool:
    """By what the command names, what the environment marks, or where a retitled worker works."""
    words = " ".join(info["cmdline"] or ())
    marks = [(info["environ"] or {}).get(mark, "") for mark in MARKS]
    places = [*marks, str(info["cwd"] or "")] if words.startswith(TITLES) else marks
    return f"{checkout}/.venv" in words or any(
        Path(place).is_relative_to(checkout) for place in places
    )


def folders_of_the_dead(roots: tuple[Path, ...] = ROOTS) -> Iterator[Path]:
    """Folders of Ray, of vLLM and of weights whose process, named in them by its pid, has ended."""
    for folder in (found for root in roots for found in sorted(root.glob("hillclimb-*"))):
        pid = re.match(r"hillclimb-(?:ray|vllm|weights)-(\d+)-", folder.name)
        if pid and not psutil.pid_exists(int(pid[1])):
            yield folder


def main() -> int:
    """Print what is left; 1 if anything is."""
    checkout = Path(__file__).resolve().parent.parent
    processes = [f"{each.pid} {' '.join(each.cmdline())}" for each in processes_of(checkout)]
    left = [*processes, *map(str, folders_of_the_dead())]
    for each in left:
        print(f"left behind: {each}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
