"""Idempotency keys: the response of a POST is stored in the transaction of its effect."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables.training.runs import IdempotencyKey


class IdempotencyKeyReused(Exception):
    """The key was used with another body; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """The identity of a request; `body` detects a reused key."""

    project_id: str
    method: str
    path: str
    key: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A stored response."""

    status: int
    response: dict[str, Any]


def find(session: Session, request: RequestKey) -> StoredResponse | None:
    """Return the stored response without waiting for one in progress, or null.

    For long work that precedes the transaction of `begin` and `finish`. Raises
    IdempotencyKeyReused when the key was used with another body.
    """
    names = (request.project_id, request.method, request.path, request.key)
    stored = session.get(IdempotencyKey, names)
    return None if stored is None else _same(stored, request)


def begin(session: Session, request: RequestKey) -> StoredResponse | None:
    """Return the stored response, or null when the caller is the first and must `finish`.

    Waits for another transaction with the same key. Raises IdempotencyKeyReused when the key was
    used with another body.
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


def _same(stored: IdempotencyKey, request: RequestKey) -> StoredResponse:
    """Return the response; raises IdempotencyKeyReused when it belongs to another request."""
    body_hash = hashlib.sha256(request.body).hexdigest()
    if stored.body_hash != body_hash or stored.status is None or stored.response is None:
        raise IdempotencyKeyReused(
            f"The idempotency key {request.key!r} was used with another body."
        )
    return StoredResponse(status=stored.status, response=stored.response)


def finish(session: Session, request: RequestKey, answer: StoredResponse) -> None:
    """Store the response for repetitions, in the transaction of `begin`."""
    names = (request.project_id, request.method, request.path, request.key)
    stored = session.get_one(IdempotencyKey, names)
    stored.status = answer.status
    stored.response = answer.response
