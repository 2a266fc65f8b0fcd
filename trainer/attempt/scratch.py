"""Folders that a process deletes at its end, and those that a killed one could not."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hillclimb.process.launcher import has_ended
from hillclimb.protocol.rundir import MODEL, RESUME, WEIGHTS, AttemptDir, checkpoint_name

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's name for shared memory


def scratch_path(root: Path, prefix: str) -> Path:
    """Name a folder in `root` after this process; those that dead processes left are deleted."""
    remove_leftovers(root, prefix)
    return root / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"


def remove_leftovers(root: Path, prefix: str) -> None:
    """Delete the folders of processes that are not there any more."""
    for folder in root.glob(f"{prefix}*"):
        pid = re.match(rf"{re.escape(prefix)}(\d+)-", folder.name)
        if pid and not _is_there(int(pid[1])):
            shutil.rmtree(folder, ignore_errors=True)


def cleanup_stale(attempt_dir: AttemptDir) -> None:
    """Free the disk of what earlier attempts of the run had brought here, and could not delete.

    Events, logs and trajectories stay, and so does everything of an attempt that may still train.
    """
    for earlier in _ended_before(attempt_dir):
        for name in (RESUME, MODEL, WEIGHTS):
            shutil.rmtree(earlier.path / name, ignore_errors=True)


def remove_earlier_copies(attempt_dir: AttemptDir, step: int) -> None:
    """Free the disk of earlier attempts' checkpoints up to `step`, of which the store has a later.

    Not before it has: what the store never took may be all that is left of the training.
    """
    for earlier in _ended_before(attempt_dir):
        for copy in earlier.run_dir.glob(checkpoint_name("*", earlier.attempt)):
            if int(copy.parent.name.rpartition("_")[2]) <= step:
                shutil.rmtree(copy, ignore_errors=True)
                with suppress(OSError):
                    copy.parent.rmdir()


def _ended_before(attempt_dir: AttemptDir) -> Iterator[AttemptDir]:
    """Yield the earlier attempts that can train no more."""
    for number in range(1, attempt_dir.attempt):
        earlier = AttemptDir(attempt_dir.run_dir, number)
        if has_ended(earlier):
            yield earlier


def _is_there(pid: int) -> bool:
    """Ask by a signal that does nothing: not every system lists its processes in /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
