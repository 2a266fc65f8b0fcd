"""Makes a POST repeatable: its answer is stored in the transaction that made what it answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.runs.errors import IdempotencyKeyReused
from api.tables import IdempotencyKey


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """What makes two requests the same; `body` tells whether they really are."""

    project_id: str
    method: str
    path: str
    key: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A stored answer."""

    status: int
    response: dict[str, Any]


def find(session: Session, request: RequestKey) -> Answer | None:
    """Return the stored answer without waiting for one that is being made, or null.

    For work that takes long and is done before the transaction that begins and finishes the key.
    Raises IdempotencyKeyReused when the key came with another body before.
    """
    names = (request.project_id, request.method, request.path, request.key)
    stored = session.get(IdempotencyKey, names)
    return None if stored is None else _same(stored, request)


def begin(session: Session, request: RequestKey) -> Answer | None:
    """Return the stored answer, or null when the caller is the first and must `finish`.

    Waits while another transaction is making the answer. Raises IdempotencyKeyReused when the
    key came with another body before.
    """
    names = {
        "project_id": request.project_id,
        "method": request.method,
        "path": request.path,
        "key": request.key,
    }
    body_hash = hashlib.sha256(request.body).hexdigest()
    statement = insert(IdempotencyKey).values(**names, body_hash=body_hash)
    inserted = session.scalar(
        statement.on_conflict_do_nothing().returning(IdempotencyKey.body_hash)
    )
    if inserted is not None:
        return None
    return _same(session.get_one(IdempotencyKey, tuple(names.values())), request)


def _same(stored: IdempotencyKey, request: RequestKey) -> Answer:
    """Return the answer; raises IdempotencyKeyReused when it is another request's."""
    body_hash = hashlib.sha256(request.body).hexdigest()
    if stored.body_hash != body_hash or stored.status is None or stored.response is None:
        raise IdempotencyKeyReused(
            f"The idempotency key {request.key!r} was used with another body."
        )
    return Answer(status=stored.status, response=stored.response)


def finish(session: Session, request: RequestKey, answer: Answer) -> None:
    """Store the answer for repetitions, in the transaction that `begin` ran in."""
    names = (request.project_id, request.method, request.path, request.key)
    stored = session.get_one(IdempotencyKey, names)
    stored.status = answer.status
    stored.response = answer.response
