"""The inbox of the Slack app: requests are stored before they are acknowledged, then acted on.

A request is acted on at least once, however often the process stops: what acts is idempotent under
the request's id. Its reply is stored before it is posted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.notices.errors import RequestForged
from api.tables import SlackRequest

RECEIVED, ANSWERED, DONE, DEAD = "received", "answered", "done", "dead"
LEASE_S = 30.0
"""After this another process takes the request over; acting on one takes seconds."""
MAX_TRIES = 5
RETENTION = timedelta(days=1)
"""Rows are deleted after this; far longer than a signature is valid."""

Kind = Literal["command", "action", "view", "event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A verified request."""

    kind: Kind
    signature: str
    payload: Mapping[str, Any]
    project_id: str | None
    dedupe_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxClaim:
    """A request that this process works on until its lease ends."""

    id: int
    kind: Kind
    payload: Mapping[str, Any]
    state: str
    reply: dict[str, Any] | None
    num_attempts: int
    """Including this one."""


def receive(session: Session, received: Received) -> int | None:
    """Store a request and return its id; null for a repeated click or event.

    Raises RequestForged for a request that was received before.
    """
    row = {
        "signature": received.signature,
        "dedupe_key": received.dedupe_key,
        "kind": received.kind,
        "payload": dict(received.payload),
        "project_id": received.project_id,
        "state": RECEIVED,
        "num_attempts": 0,
    }
    statement = insert(SlackRequest).values(**row).on_conflict_do_nothing()
    stored: int | None = session.scalar(statement.returning(SlackRequest.id))
    if stored is not None:
        return stored
    query = select(SlackRequest.id).where(SlackRequest.signature == received.signature)
    if session.scalar(query) is not None:
        raise RequestForged("This request was received before.")
    return None


def list_due(session: Session, *, now: datetime, limit: int) -> Sequence[int]:
    """Return ids of requests that wait for a process, oldest first."""
    query = select(SlackRequest.id).where(*_due(now)).order_by(SlackRequest.id)
    return session.scalars(query.limit(limit)).all()


def take(session: Session, request_id: int, *, now: datetime) -> InboxClaim | None:
    """Take a request over; null if it is done, not due, or another process works on it."""
    query = select(SlackRequest).where(SlackRequest.id == request_id, *_due(now))
    row = session.scalar(query.with_for_update(skip_locked=True))
    if row is None:
        return None
    row.lease_until = now + timedelta(seconds=LEASE_S)
    row.num_attempts += 1
    return InboxClaim(
        id=row.id,
        kind=row.kind,  # type: ignore[arg-type]
        payload=row.payload,
        state=row.state,
        reply=row.reply,
        num_attempts=row.num_attempts,
    )


def _due(now: datetime) -> tuple[Any, ...]:
    return (
        SlackRequest.state.in_((RECEIVED, ANSWERED)),
        SlackRequest.next_try_at <= now,
        or_(SlackRequest.lease_until.is_(None), SlackRequest.lease_until < now),
    )


def keep_reply(session: Session, request_id: int, reply: dict[str, Any] | None) -> None:
    """Store what to reply; without a reply the request is done."""
    row = session.get_one(SlackRequest, request_id)
    row.reply = reply
    row.state = DONE if reply is None else ANSWERED


def keep_spec(session: Session, request_id: int, spec: dict[str, Any]) -> None:
    """Store the spec that a plan shows, until it is confirmed."""
    session.get_one(SlackRequest, request_id).spec = spec


def find_spec(session: Session, request_id: int, *, project_id: str) -> dict[str, Any] | None:
    """Return the spec of a plan of the project; null once it was deleted."""
    query = select(SlackRequest.spec).where(
        SlackRequest.id == request_id, SlackRequest.project_id == project_id
    )
    return session.scalar(query)


def finish(session: Session, request_id: int, *, error: str | None = None) -> None:
    """Close a request; with an error it is given up."""
    row = session.get_one(SlackRequest, request_id)
    row.state = DONE if error is None else DEAD
    row.error = error
    row.lease_until = None


def try_again(session: Session, request_id: int, *, at: datetime, error: str, counts: bool) -> None:
    """Release a request until a time; only where `counts` this try counts toward the maximum."""
    row = session.get_one(SlackRequest, request_id)
    row.next_try_at = at
    row.lease_until = None
    row.error = error
    if not counts:
        row.num_attempts -= 1
