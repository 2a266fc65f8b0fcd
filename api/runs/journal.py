"""Appends events to a run: gap-free `seq` under the run's row lock, NOTIFY at the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session, object_session

from api.runs.outbox import TO_WEBHOOKS, WEBHOOK_EVENTS, enqueue_for_event
from api.tables import Run, RunEvent
from api.tables.access import audit
from api.tables.bulk import Following, insert_followed
from api.tables.ids import new_id

CHANNEL = "hillclimb_events"
"""PostgreSQL channel of NOTIFY and LISTEN; a payload is `run_id:seq` of a commit's newest event."""
SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An event before it has a `seq`: `type` is `noun.verbed`, `data` is JSON."""

    type: str
    actor: str = SERVICE
    at: datetime | None = None
    """Null means now."""
    attempt: int | None = None
    trainer_seq: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


def utc_now() -> datetime:
    """Return the current time in UTC; every domain function takes it as `now`."""
    return datetime.now(UTC)


def append(session: Session, run: Run, drafts: Sequence[Draft]) -> int:
    """Write the events in this order and return the last `seq`.

    `run` was read with `store.lock_run` in this transaction, or is new: one that no session has yet
    is stored by the statement of its events. Readers see the events, and are notified, when the
    transaction commits. Nobody gets a message about an imported run.
    """
    if not drafts:
        return run.last_seq
    first = run.last_seq + 1
    run.last_seq += len(drafts)
    is_new = object_session(run) is None
    if is_new:
        session.flush()  # of what the run refers to
    rows = [_row(run, first + i, draft) for i, draft in enumerate(drafts)]
    following = _following(run, drafts)
    insert_followed(session, RunEvent, rows, following, owner=run if is_new else None)
    if is_new:
        audit.note_created(run)
    for seq, draft in enumerate(drafts if run.origin is None else (), start=first):
        enqueue_for_event(session, run, seq=seq, event_type=draft.type, data=draft.data)
    return run.last_seq


_NOTIFY = "SELECT pg_notify(%s::text, %s::text)"
_WITH_WEBHOOKS = f", messages AS ({TO_WEBHOOKS}) {_NOTIFY}"


def _following(run: Run, drafts: Sequence[Draft]) -> Following:
    """Return what is done with the events in their statement: messages to webhooks, and NOTIFY.

    A statement of its own for each of the two takes more CPU time here than in the database.
    """
    news = (CHANNEL, f"{run.id}:{run.last_seq}")
    if run.origin is None and any(draft.type in WEBHOOK_EVENTS for draft in drafts):
        parameters, columns = (run.project_id, *news), ("run_id", "seq", "type")
        return Following(sql=_WITH_WEBHOOKS, parameters=parameters, returning=columns)
    return Following(sql=_NOTIFY, parameters=news, returning=("seq",))


def _row(run: Run, seq: int, draft: Draft) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "seq": seq,
        "id": new_id("evt"),
        "type": draft.type,
        "attempt": draft.attempt,
        "trainer_seq": draft.trainer_seq,
        "at": draft.at or utc_now(),
        "actor": draft.actor,
        "data": draft.data,
    }
