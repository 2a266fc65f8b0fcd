"""The rows of a validation in the blob store, stored as it goes and read by later attempts."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterable

from hillclimb.blobs.archive.gzip_file import GzipLimit, unpacked_lines
from hillclimb.blobs.base import BlobMissing, BlobStore, StoreError
from hillclimb.protocol.rundir import AttemptDir, attempt_name, run_key
from hillclimb.protocol.validation import (
    TEACHER_USE,
    VALIDATION_ROWS,
    TaskValidation,
    TaskVerdict,
    TeacherUse,
)

_LEVEL = 6
_LIMIT = GzipLimit(unpacked_bytes=1 << 30)
_log = logging.getLogger(__name__)


def rows_key(attempt_dir: AttemptDir, attempt: int) -> str:
    """Return the blob key of an attempt's rows."""
    return run_key(attempt_dir.run_dir.name, attempt_name(attempt), VALIDATION_ROWS)


def write_rows(store: BlobStore, attempt_dir: AttemptDir, rows: Iterable[TaskValidation]) -> None:
    """Store the rows, replacing earlier ones of the attempt.

    Raises:
        StoreError: the store rejects them.
    """
    lines = "".join(row.model_dump_json() + "\n" for row in rows)
    data = gzip.compress(lines.encode(), _LEVEL, mtime=0)
    store.put(rows_key(attempt_dir, attempt_dir.attempt), data)


def write_use(store: BlobStore, attempt_dir: AttemptDir, use: TeacherUse) -> None:
    """Store the run's use of the teacher so far.

    Raises:
        StoreError: the store rejects it.
    """
    store.put(_use_key(attempt_dir, attempt_dir.attempt), use.model_dump_json().encode())


def known_use(store: BlobStore, attempt_dir: AttemptDir) -> TeacherUse | None:
    """Return the use of the teacher by earlier attempts, as stored by the newest of them."""
    for attempt in range(attempt_dir.attempt - 1, 0, -1):
        try:
            return TeacherUse.model_validate_json(store.get(_use_key(attempt_dir, attempt)))
        except BlobMissing:
            continue
        except (StoreError, ValueError) as error:
            _log.warning("the use of the teacher by attempt %d is unknown: %s", attempt, error)
    return None


def read_rows(data: bytes) -> list[TaskValidation]:
    """Return the rows of a file.

    Raises:
        ValueError: it is damaged, or too large.
    """
    return [TaskValidation.model_validate_json(line) for line in unpacked_lines(data, _LIMIT)]


def known_rows(store: BlobStore, attempt_dir: AttemptDir) -> dict[str, TaskValidation]:
    """Return the known rows of the newest earlier attempt that stored any, by task."""
    for attempt in range(attempt_dir.attempt - 1, 0, -1):
        try:
            rows = read_rows(store.get(rows_key(attempt_dir, attempt)))
        except BlobMissing:
            continue
        except (StoreError, ValueError) as error:
            _log.warning("the rows of attempt %d are ignored: %s", attempt, error)
            continue
        return {row.task_key: row for row in rows if row.verdict is not TaskVerdict.UNKNOWN}
    return {}


def _use_key(attempt_dir: AttemptDir, attempt: int) -> str:
    return run_key(attempt_dir.run_dir.name, attempt_name(attempt), TEACHER_USE)
