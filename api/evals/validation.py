"""What a validation found: the summary from its event, the rows from the blob store."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from api.evals.errors import NoSuchValidation
from api.evals.newest import newest_event
from api.tables import Run
from trainer.contract.events import ValidationCompleted
from trainer.contract.rundir import attempt_name, run_key
from trainer.stores.base import BlobMissing, BlobStore

TYPE: str = ValidationCompleted.model_fields["type"].default


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A validation's facts, and where its rows are."""

    facts: dict[str, Any]
    key: str


def find_validation(session: Session, run: Run) -> Found:
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
    return Found(
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
    )


def read_rows(
    store: BlobStore, key: str, *, verdict: str | None, env: str | None
) -> list[dict[str, Any]]:
    """Return the rows with this verdict, of this environment, in the order of the tasks.

    Raises:
        NoSuchValidation: the rows are not in the store, or are damaged.
    """
    try:
        lines = gzip.decompress(store.get(key)).splitlines()
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    except BlobMissing as error:
        raise NoSuchValidation("The rows of the validation are not in the store.") from error
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise NoSuchValidation("The rows of the validation are damaged.") from error
    return [
        row for row in rows if verdict in (None, row["verdict"]) and env in (None, row["env_key"])
    ]
