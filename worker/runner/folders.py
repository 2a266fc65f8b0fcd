"""Folders of runs on the runner's machine: those of deleted runs are deleted."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

PART = 500
"""Runs of one request."""
LEAVING = ".deleting-"
"""Prefix of a folder that is being deleted: half of a run is never taken for a run."""


def in_parts(runs_dir: Path, busy: Collection[str]) -> Iterator[Sequence[str]]:
    """Yield the names of the runs that have a folder and are not busy, some at a time."""
    if not runs_dir.is_dir():
        return
    names = sorted(
        each.name
        for each in runs_dir.iterdir()
        if each.name.startswith("run_") and each.is_dir() and each.name not in busy
    )
    for start in range(0, len(names), PART):
        yield names[start : start + PART]


def delete(folder: Path) -> None:
    """Delete the folder of a run."""
    leaving = folder.with_name(f"{LEAVING}{folder.name}")
    try:
        folder.rename(leaving)
    except OSError as error:
        log.warning("the folder of deleted run %s is left for now: %s", folder.name, error)
        return
    shutil.rmtree(leaving, ignore_errors=True)
    log.info("deleted the folder of run %s", folder.name)


def delete_unfinished(runs_dir: Path) -> None:
    """Go on with folders whose deletion was interrupted."""
    for leaving in runs_dir.glob(f"{LEAVING}*"):
        shutil.rmtree(leaving, ignore_errors=True)
