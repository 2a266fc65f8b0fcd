"""The rows of a capsule as JSON lines, read in pages: each page is a transaction of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from api.tables import Eval, OutcomeRecord, RunEvent
from api.tables.database import Database

PAGE = 1000
"""Rows per read."""
OUTCOME = [each.key for each in OutcomeRecord.__table__.columns if each.key != "run_id"]
EVAL = [each.key for each in Eval.__table__.columns if each.key not in ("run_id", "counts")]
"""The counts follow from the outcomes."""


def event_lines(database: Database, run_id: str, *, last_seq: int) -> Iterator[bytes]:
    """Yield the events up to `last_seq` in pages of lines, as `GET …/events` returns them."""
    after = 0
    while after < last_seq:
        with database.transaction() as session:
            query = select(RunEvent).where(
                RunEvent.run_id == run_id, RunEvent.seq > after, RunEvent.seq <= last_seq
            )
            events = session.scalars(query.order_by(RunEvent.seq).limit(PAGE)).all()
        if not events:
            return
        after = events[-1].seq
        yield b"".join(json_line(_event(each)) for each in events)


def outcome_lines(database: Database, run_id: str) -> Iterator[bytes]:
    """Yield the outcomes in pages of lines, by step and rollout id."""
    after: tuple[int, str] = (-1, "")
    while True:
        with database.transaction() as session:
            place = tuple_(OutcomeRecord.step, OutcomeRecord.rollout_id)
            query = select(OutcomeRecord).where(OutcomeRecord.run_id == run_id, place > after)
            query = query.order_by(OutcomeRecord.step, OutcomeRecord.rollout_id).limit(PAGE)
            page: Sequence[OutcomeRecord] = session.scalars(query).all()
        if not page:
            return
        after = (page[-1].step, page[-1].rollout_id)
        yield b"".join(json_line({name: getattr(row, name) for name in OUTCOME}) for row in page)


def eval_facts(session: Session, run_id: str) -> list[dict[str, Any]]:
    """Return every evaluation of every attempt, by step, decoding and attempt."""
    query = select(Eval).where(Eval.run_id == run_id)
    rows = session.scalars(query.order_by(Eval.step, Eval.decoding, Eval.attempt))
    return [{name: getattr(row, name) for name in EVAL} for row in rows]


def json_line(value: Mapping[str, Any]) -> bytes:
    """Return one line of canonical JSON: sorted keys, times in UTC."""
    return json.dumps(value, **CANONICAL).encode() + b"\n"


def json_document(value: object) -> bytes:
    """Return a canonical JSON document that a person can read."""
    return json.dumps(value, indent=1, **(CANONICAL | {"separators": None})).encode() + b"\n"


def _time(value: object) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"no JSON for {type(value).__name__}")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


CANONICAL: dict[str, Any] = {
    "sort_keys": True,
    "ensure_ascii": False,
    "separators": (",", ":"),
    "default": _time,
}


def _event(event: RunEvent) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "id": event.id,
        "type": event.type,
        "created_at": event.at,
        "run_id": event.run_id,
        "attempt": event.attempt,
        "actor": event.actor,
        "data": event.data,
    }
