"""The rows of a validation in the blob store: kept as it goes on, taken up by a later attempt."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Iterable

from trainer.contract.rundir import AttemptDir, attempt_name, run_key
from trainer.contract.validation import (
    TEACHER_USE,
    VALIDATION_ROWS,
    TaskValidation,
    TaskVerdict,
    TeacherUse,
)
from trainer.stores.base import BlobMissing, BlobStore, StoreError

_LEVEL = 6
_log = logging.getLogger(__name__)


def rows_key(attempt_dir: AttemptDir, attempt: int) -> str:
    """Return the blob key of an attempt's rows."""
    return run_key(attempt_dir.run_dir.name, attempt_name(attempt), VALIDATION_ROWS)


def write_rows(store: BlobStore, attempt_dir: AttemptDir, rows: Iterable[TaskValidation]) -> None:
    """Store the rows in place of those that were stored before.

    Raises:
        StoreError: the store does not take them.
    """
    lines = "".join(row.model_dump_json() + "\n" for row in rows)
    data = gzip.compress(lines.encode(), _LEVEL, mtime=0)
    store.put(rows_key(attempt_dir, attempt_dir.attempt), data)


def write_use(store: BlobStore, attempt_dir: AttemptDir, use: TeacherUse) -> None:
    """Store what the teacher was asked by the run so far.

    Raises:
        StoreError: the store does not take it.
    """
    store.put(_use_key(attempt_dir, attempt_dir.attempt), use.model_dump_json().encode())


def known_use(store: BlobStore, attempt_dir: AttemptDir) -> TeacherUse | None:
    """Return what earlier attempts have asked the teacher, as the newest of them left it."""
    for attempt in range(attempt_dir.attempt - 1, 0, -1):
        try:
            return TeacherUse.model_validate_json(store.get(_use_key(attempt_dir, attempt)))
        except BlobMissing:
            continue
        except (StoreError, ValueError) as error:
            _log.warning("what attempt %d asked the teacher is not known: %s", attempt, error)
    return None


def read_rows(data: bytes) -> list[TaskValidation]:
    """Return the rows of a file.

    Raises:
        ValueError: it is damaged.
    """
    try:
        lines = gzip.decompress(data).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"the rows are damaged: {error}") from error
    return [TaskValidation.model_validate_json(line) for line in lines]


def known_rows(store: BlobStore, attempt_dir: AttemptDir) -> dict[str, TaskValidation]:
    """Return what the newest earlier attempt that left rows found out, by task."""
    for attempt in range(attempt_dir.attempt - 1, 0, -1):
        try:
            rows = read_rows(store.get(rows_key(attempt_dir, attempt)))
        except BlobMissing:
            continue
        except (StoreError, ValueError) as error:
            _log.warning("the rows of attempt %d are not taken up: %s", attempt, error)
            continue
        return {row.task_key: row for row in rows if row.verdict is not TaskVerdict.UNKNOWN}
    return {}


def _use_key(attempt_dir: AttemptDir, attempt: int) -> str:
    return run_key(attempt_dir.run_dir.name, attempt_name(attempt), TEACHER_USE)
