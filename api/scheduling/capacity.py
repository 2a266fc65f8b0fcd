"""How many attempts a project's runners can take now, and of which kinds."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

from sqlalchemy import ColumnElement, func, literal, select
from sqlalchemy.orm import Session

from api.runs.lanes import Lane, in_lane
from api.runs.light import LIGHT_AT_ONCE, kind, light
from api.runs.status import AttemptState
from api.tables import Attempt, Run, Runner

LOCK_SPACE = 0x534C4F54
"""First key of the advisory lock under which slots of a project are counted and offered."""


@dataclass(frozen=True, slots=True)
class Places:
    """What one runner can take now."""

    kinds: frozenset[str]
    """Kinds of runs that it carries out."""
    number: int
    """Attempts of them."""


def lock(session: Session, project_id: str) -> None:
    """Make offers of a project take turns until the transaction ends."""
    key = zlib.crc32(project_id.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(LOCK_SPACE, key)))


def known_kinds(session: Session, project_id: str, *, now: datetime) -> frozenset[str]:
    """Return the kinds of runs that a runner which is heard carries out; none without a runner."""
    kinds = select(func.unnest(Runner.kinds)).where(*_is_live(project_id, now)).distinct()
    return frozenset(session.scalars(kinds))


def free_places(
    session: Session, project_id: str, *, is_light: bool, now: datetime
) -> list[Places]:
    """Return what runners that are heard can take beside the attempts they have.

    Those are slots that no attempt holds, offers left out of account. Light kinds take none: each
    runner has a few places for them.
    """
    taking = Attempt.state.in_((AttemptState.CLAIMED.value, AttemptState.RUNNING.value))
    held = (
        select(func.count())
        .select_from(Attempt)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.runner_id == Runner.id, taking, light() if is_light else ~light())
        .correlate(Runner)
        .scalar_subquery()
    )
    total = literal(LIGHT_AT_ONCE) if is_light else Runner.slots
    found = session.execute(select(Runner.kinds, total - held).where(*_is_live(project_id, now)))
    return [Places(frozenset(kinds), max(0, number)) for kinds, number in found]


def offered(session: Session, project_id: str) -> Counter[str]:
    """Return how many attempts of each kind are offered to runners and not taken yet."""
    query = (
        select(kind().label("run_kind"), func.count())
        .select_from(Attempt)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state == AttemptState.OFFERED.value, Run.project_id == project_id)
        .where(~in_lane(Lane.CLUSTER))
        .group_by("run_kind")
    )
    return Counter(dict(session.execute(query).all()))


def num_served(wanted: Mapping[str, int], places: Sequence[Places]) -> int:
    """Return how many of the attempts wanted, by kind, find a place at once.

    The largest matching is as small as the tightest cut (König): of some kinds all attempts, of
    the others no more than the places that any of them may take.
    """
    kinds = [name for name, number in wanted.items() if number]
    return min(
        sum(wanted[name] for name in kinds if name not in cut)
        + sum(each.number for each in places if not each.kinds.isdisjoint(cut))
        for size in range(len(kinds) + 1)
        for cut in combinations(kinds, size)
    )


def _is_live(project_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (Runner.project_id == project_id, Runner.lease_until > now, Runner.draining.is_(False))
