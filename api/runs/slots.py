"""How many attempts a project's runners can take now, and of which kinds."""

from __future__ import annotations

import zlib
from datetime import datetime

from sqlalchemy import ColumnElement, any_, func, literal, select
from sqlalchemy.orm import Session

from api.runs.light import LIGHT_AT_ONCE, light
from api.runs.status import AttemptState
from api.tables import Attempt, Run, Runner
from trainer.contract.spec import LIGHT_KINDS

LOCK_SPACE = 0x534C4F54
"""First key of the advisory lock under which slots of a project are counted and offered."""


def lock(session: Session, project_id: str) -> None:
    """Make offers of a project take turns until the transaction ends."""
    key = zlib.crc32(project_id.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(LOCK_SPACE, key)))


def known_kinds(session: Session, project_id: str, *, now: datetime) -> frozenset[str]:
    """Return the kinds of runs that a runner which is heard carries out; none without a runner."""
    kinds = select(func.unnest(Runner.kinds)).where(*_is_live(project_id, now)).distinct()
    return frozenset(session.scalars(kinds))


def count_free(session: Session, project_id: str, kind: str, *, now: datetime) -> int:
    """Return how many attempts of this kind runners that are heard can take beside those they have.

    That are slots that no attempt holds and no offer waits for. Light kinds take none: each runner
    has a few places for them.
    """
    able = (*_is_live(project_id, now), literal(kind) == any_(Runner.kinds))
    is_light = kind in LIGHT_KINDS
    slots = literal(LIGHT_AT_ONCE) if is_light else Runner.slots
    total = session.scalar(select(func.sum(slots)).select_from(Runner).where(*able)) or 0
    offered = (Attempt.state == AttemptState.OFFERED.value) & (Run.project_id == project_id)
    held = Attempt.state.in_((AttemptState.CLAIMED.value, AttemptState.RUNNING.value))
    runners = select(Runner.id).where(*able)
    used = session.scalar(
        select(func.count())
        .select_from(Attempt)
        .join(Run, Run.id == Attempt.run_id)
        .where(offered | (held & Attempt.runner_id.in_(runners)), light() if is_light else ~light())
    )
    return max(0, total - (used or 0))


def _is_live(project_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (Runner.project_id == project_id, Runner.lease_until > now, Runner.draining.is_(False))
