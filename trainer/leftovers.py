"""Folders that a process deletes at its end, and those that a killed one could not."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from trainer.contract.rundir import MODEL, RESUME, WEIGHTS, AttemptDir, checkpoint_name
from trainer.handover.launch import read_pid
from trainer.handover.processes import is_alive


def own_path(root: Path, prefix: str) -> Path:
    """Name a folder in `root` after this process; those that dead processes left are deleted."""
    remove_leftovers(root, prefix)
    return root / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"


def remove_leftovers(root: Path, prefix: str) -> None:
    """Delete the folders of processes that are not there any more."""
    for folder in root.glob(f"{prefix}*"):
        pid = re.match(rf"{re.escape(prefix)}(\d+)-", folder.name)
        if pid and not _is_there(int(pid[1])):
            shutil.rmtree(folder, ignore_errors=True)


def remove_earlier_copies(attempt_dir: AttemptDir) -> None:
    """Free the disk of the weights that earlier attempts of the run have left on it.

    An attempt that was killed left what it had not stored whole, and nobody goes on from that: a
    resume takes what the store has. Its events, logs and trajectories stay, and so does everything
    of an attempt whose trainer still lives.
    """
    for number in range(1, attempt_dir.attempt):
        earlier = AttemptDir(attempt_dir.run_dir, number)
        record = read_pid(earlier)
        if record is not None and is_alive(record):
            continue
        for name in (RESUME, MODEL, WEIGHTS):
            shutil.rmtree(earlier.path / name, ignore_errors=True)
        for copy in earlier.run_dir.glob(checkpoint_name("*", number)):
            shutil.rmtree(copy, ignore_errors=True)
            with suppress(OSError):
                copy.parent.rmdir()


def _is_there(pid: int) -> bool:
    """Ask by a signal that does nothing: not every system lists its processes in /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
