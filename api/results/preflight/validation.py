"""Results of a validation: the summary from its event, the rows from the blob store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from api.results.errors import NoSuchValidation
from api.results.preflight.newest_event import newest_event
from api.tables import Run
from hillclimb.blobs.archive.gzip_file import (
    GzipDamaged,
    GzipLimit,
    GzipTooLarge,
    unpacked_lines,
)
from hillclimb.blobs.base import BlobMissing, BlobStore, StoreError, checked_key
from hillclimb.protocol.events import ValidationCompleted
from hillclimb.protocol.rundir import attempt_name, run_key
from hillclimb.protocol.validation import TaskValidation

TYPE: str = ValidationCompleted.model_fields["type"].default
MAX_PACKED_BYTES = 32 * 2**20
MAX_UNPACKED_BYTES = 128 * 2**20
"""Limit of the decompressed rows, which a trainer writes unchecked; a task takes a few hundred
bytes."""
_TOO_LARGE = (
    "The validation has too many rows to be read here"
    f" ({MAX_UNPACKED_BYTES // 2**20} MB at most when decompressed): validate fewer tasks with"
    " validation.tasks_per_env or fewer data.env_keys."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A validation's facts, and the blob key of its rows."""

    facts: dict[str, Any]
    key: str
    report_seq: int
    """Position of the report among the run's events."""


def find_validation(session: Session, run: Run) -> Validation:
    """Return the newest attempt's validation, without its rows.

    Raises:
        NoSuchValidation: the run has not reported one.
    """
    event = newest_event(session, run.id, TYPE)
    if event is None:
        kind = run.spec.get("kind", "train")
        hint = "" if kind == "validate" else f": it is of kind {kind}, submit one of kind validate"
        raise NoSuchValidation(f"Run {run.id} has reported no validation{hint}.")
    data: dict[str, Any] = event.data
    dataset = run.spec["data"].get("dataset")
    return Validation(
        facts={
            "object": "validation",
            "run_id": run.id,
            "attempt": event.attempt,
            "created_at": event.at,
            "dataset": dataset and {key: dataset[key] for key in ("name", "version", "id")},
            "complete": data["complete"],
            "duration_s": data["duration_s"],
            "teacher": data["teacher"],
            **data["summary"],
        },
        key=run_key(run.id, attempt_name(event.attempt or 0), data["rows"]),
        report_seq=event.seq,
    )


def read_rows(
    store: BlobStore, key: str, *, verdict: str | None, env: str | None
) -> Iterator[TaskValidation]:
    """Yield the rows with this verdict, of this environment, in the order of the tasks.

    Raises:
        NoSuchValidation: the rows are not in the store, lie outside of the run's folder, are more
            than a service reads, or are damaged.
        StoreError: the store does not respond.
    """
    for line in _lines(_packed(store, key)):
        try:
            row = TaskValidation.model_validate_json(line)
        except ValueError as error:
            raise NoSuchValidation("The rows of the validation are damaged.") from error
        if verdict in (None, row.verdict) and env in (None, row.env_key):
            yield row


def _packed(store: BlobStore, key: str) -> bytes:
    try:
        checked_key(key)
    except StoreError as error:
        raise NoSuchValidation("The rows of the validation are not in its run's folder.") from error
    try:
        if store.size(key) > MAX_PACKED_BYTES:
            raise NoSuchValidation(_TOO_LARGE)
        return store.get(key)
    except BlobMissing as error:
        raise NoSuchValidation("The rows of the validation are not in the store.") from error


def _lines(packed: bytes) -> Iterator[bytes]:
    """Yield the lines of a compressed file, one in memory at a time."""
    try:
        yield from unpacked_lines(packed, GzipLimit(unpacked_bytes=MAX_UNPACKED_BYTES))
    except GzipTooLarge as error:
        raise NoSuchValidation(_TOO_LARGE) from error
    except GzipDamaged as error:
        raise NoSuchValidation("The rows of the validation are damaged.") from error
