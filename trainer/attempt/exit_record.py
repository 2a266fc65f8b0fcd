"""The exit record (`exit.json`): the reason of the trainer's exit, written even to a full disk."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from hillclimb.protocol.rundir import AttemptDir, ExitRecord

MAX_MESSAGE = 2000
"""Longest message of a record (characters)."""
_RESERVED_BYTES = 16 * 1024
"""More than any record needs: four bytes per character, escapes doubled."""


def reserve_exit(attempt_dir: AttemptDir) -> None:
    """Reserve the record's space on the disk; on a disk that is already full, do nothing."""
    with suppress(OSError), attempt_dir.exit.with_suffix(".part").open("wb") as handle:
        handle.write(b" " * _RESERVED_BYTES)
        handle.flush()
        os.fsync(handle.fileno())


def write_exit(attempt_dir: AttemptDir, record: ExitRecord) -> None:
    """Write the record into its reserved space; if even that fails, report it on standard error."""
    part = attempt_dir.exit.with_suffix(".part")
    try:
        # Overwrite before truncating: another writer could take the space that truncating frees.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT, 0o644)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(record.model_dump_json().encode())
            handle.truncate()
        part.replace(attempt_dir.exit)
    except OSError as error:
        sys.stderr.write(f"error: {attempt_dir.exit} cannot be written: {error}\n")
