"""Reads a run's messages to Slack, with the result of each one's last try."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.tables import OutboxMessage, Run


def list_messages(
    session: Session, run: Run, *, before: int | None, limit: int
) -> Sequence[OutboxMessage]:
    """Return the run's messages, newest first, older than the one with the id `before`."""
    query = select(OutboxMessage).where(
        OutboxMessage.run_id == run.id, OutboxMessage.webhook_id.is_(None)
    )
    if before is not None:
        query = query.where(OutboxMessage.id < before)
    return session.scalars(query.order_by(OutboxMessage.id.desc()).limit(limit)).all()
