"""`exit.json`, which says why the trainer left, also when that is a full disk."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from hillclimb.protocol.rundir import AttemptDir, ExitRecord

MAX_MESSAGE = 2000
"""Characters of a message that are kept."""
_RESERVED_BYTES = 16 * 1024
"""More than any record takes: four bytes a character, escapes doubled."""


def reserve_exit(attempt_dir: AttemptDir) -> None:
    """Take the record's space on the disk now; a disk that is full already takes none."""
    with suppress(OSError), attempt_dir.exit.with_suffix(".part").open("wb") as handle:
        handle.write(b" " * _RESERVED_BYTES)
        handle.flush()
        os.fsync(handle.fileno())


def write_exit(attempt_dir: AttemptDir, record: ExitRecord) -> None:
    """Write the record over its reserved space; where even that fails, standard error says so."""
    part = attempt_dir.exit.with_suffix(".part")
    try:
        # Not truncated first: another writer could take the space that would set free.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT, 0o644)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(record.model_dump_json().encode())
            handle.truncate()
        part.replace(attempt_dir.exit)
    except OSError as error:
        sys.stderr.write(f"error: {attempt_dir.exit} cannot be written: {error}\n")
