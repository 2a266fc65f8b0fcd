"""How many attempts a project's runners can take now."""

from __future__ import annotations

import zlib
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from api.runs.light import light
from api.runs.status import AttemptState
from api.tables import Attempt, Run, Runner

LOCK_SPACE = 0x534C4F54
"""First key of the advisory lock under which slots of a project are counted and offered."""


def lock(session: Session, project_id: str) -> None:
    """Make offers of a project take turns until the transaction ends."""
    key = zlib.crc32(project_id.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(LOCK_SPACE, key)))


def count_live_runners(session: Session, project_id: str, *, now: datetime) -> int:
    """Return how many runners are heard and take attempts."""
    query = select(func.count()).select_from(Runner)
    return session.scalar(query.where(*_is_live(project_id, now))) or 0


def count_free(session: Session, project_id: str, *, now: datetime) -> int:
    """Return slots of live runners that no attempt holds and no offer waits for.

    Attempts of light runs hold none.
    """
    total = session.scalar(select(func.sum(Runner.slots)).where(*_is_live(project_id, now))) or 0
    live = select(Runner.id).where(*_is_live(project_id, now))
    offered = (Attempt.state == AttemptState.OFFERED.value) & (Run.project_id == project_id)
    held = Attempt.state.in_((AttemptState.CLAIMED.value, AttemptState.RUNNING.value))
    used = session.scalar(
        select(func.count())
        .select_from(Attempt)
        .join(Run, Run.id == Attempt.run_id)
        .where(offered | (held & Attempt.runner_id.in_(live)), ~light())
    )
    return max(0, total - (used or 0))


def _is_live(project_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (Runner.project_id == project_id, Runner.lease_until > now, Runner.draining.is_(False))
