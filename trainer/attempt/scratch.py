"""Scratch folders: named after their process, and deleted after it was killed."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hillclimb.process.launcher import has_ended
from hillclimb.protocol.rundir import (
    MODEL,
    QUALIFY,
    RESUME,
    WEIGHTS,
    AttemptDir,
    checkpoint_name,
)

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's name for shared memory
WEIGHTS_PREFIX = "hillclimb-weights-"


def scratch_path(root: Path, prefix: str) -> Path:
    """Return a path in `root` named after this process, and delete the folders of dead ones."""
    remove_stale(root, prefix)
    return root / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"


def shared_directory() -> Path:
    """Name this process's folder for weights: in shared memory where there is some, else on a disk.

    Folders of processes that were killed are deleted.
    """
    root = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    return scratch_path(root, WEIGHTS_PREFIX)


def remove_stale(root: Path, prefix: str) -> None:
    """Delete the folders of processes that no longer exist."""
    for folder in root.glob(f"{prefix}*"):
        pid = re.match(rf"{re.escape(prefix)}(\d+)-", folder.name)
        if pid and not _is_there(int(pid[1])):
            shutil.rmtree(folder, ignore_errors=True)


def cleanup_stale(attempt_dir: AttemptDir) -> None:
    """Delete the models, weights and fetched checkpoints of the run's ended attempts.

    Their events, logs and trajectories stay. An attempt that may still train keeps everything.
    """
    for earlier in _ended_before(attempt_dir):
        for name in (RESUME, QUALIFY, MODEL, WEIGHTS):
            shutil.rmtree(earlier.path / name, ignore_errors=True)


def remove_earlier_copies(attempt_dir: AttemptDir, step: int) -> None:
    """Delete the local checkpoints of ended attempts up to `step`.

    Call it once the store has a checkpoint of `step`: until then a local copy that was never
    uploaded may be the only one.
    """
    for earlier in _ended_before(attempt_dir):
        for copy in earlier.run_dir.glob(checkpoint_name("*", earlier.attempt)):
            if int(copy.parent.name.rpartition("_")[2]) <= step:
                shutil.rmtree(copy, ignore_errors=True)
                with suppress(OSError):
                    copy.parent.rmdir()


def _ended_before(attempt_dir: AttemptDir) -> Iterator[AttemptDir]:
    """Yield the earlier attempts that have ended."""
    for number in range(1, attempt_dir.attempt):
        earlier = AttemptDir(attempt_dir.run_dir, number)
        if has_ended(earlier):
            yield earlier


def _is_there(pid: int) -> bool:
    """Tell whether a process exists, by signal 0: not every system has /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
