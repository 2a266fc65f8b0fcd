"""Placeholders of events that can never be stored: small, and made of any line with a number.

The sender makes one when the service refuses a line for what it says, the relay of a stored line
that is no event, and ingest of an event that PostgreSQL cannot store.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from hillclimb.protocol.events import EXCERPT_CHARACTERS, EventRefused, is_of_newer_schema
from hillclimb.protocol.outcomes import DETAIL_LIMIT

LARGEST_STEP = 2**31 - 1
_MOMENT: TypeAdapter[datetime] = TypeAdapter(AwareDatetime)


def refuse(line: bytes, *, trainer_seq: int, message: str) -> EventRefused:
    """Return the placeholder of a line of `events.jsonl`, with what can be read of it.

    `message` is the sentence that says why it is refused.
    """
    read = _read(line)
    kind, step = read.get("type"), read.get("step")
    is_step = isinstance(step, int) and 0 <= step <= LARGEST_STEP
    return EventRefused(
        trainer_seq=trainer_seq,
        at=_moment(read.get("at")),
        step=step if is_step else 0,
        refused_type=_storable(kind)[:100] if isinstance(kind, str) else "unknown",
        message=message[:DETAIL_LIMIT],
        size_bytes=len(line),
        excerpt=line[:EXCERPT_CHARACTERS].decode(errors="replace"),
    )


def number_of(line: bytes) -> int | None:
    """Return the number of a line that is no event of this version.

    None for a line without one, which is torn, and for one of a newer schema, which a newer version
    can store.
    """
    read = _read(line)
    number = read.get("trainer_seq")
    is_number = isinstance(number, int) and number > 0
    return number if is_number and not is_of_newer_schema(read) else None


def _read(line: bytes) -> dict[str, Any]:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _storable(text: str) -> str:
    """Return the text without lone surrogates, which no encoder writes."""
    return text.encode(errors="replace").decode()


def _moment(value: object) -> datetime:
    try:
        return _MOMENT.validate_python(value)
    except ValidationError:
        return datetime.now(UTC)
