"""Folders that a process deletes at its end, and those that a killed one could not."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path


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


def _is_there(pid: int) -> bool:
    """Ask by a signal that does nothing: not every system lists its processes in /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
