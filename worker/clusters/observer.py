"""One look at all clusters for everybody: what is there, what is not, and what nobody owns.

Each question takes the API server a second or more, so ticks of clusters that are at work ask
nobody: they read what the last sweep has written. A sweep that gets no answer writes nothing:
unreachable is not dead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.clusters.names import deployment_tag, prefix
from api.clusters.store import ClusterState
from api.clusters.strays import GRACE
from api.runs.journal import utc_now
from api.tables import Attempt, Cluster, StrayCluster
from worker.clusters import rows
from worker.clusters.base import Clouds, CloudsUnreachable, Sighting
from worker.clusters.decide import DOWN_AGAIN
from worker.clusters.fold import sweep as fold_sweep
from worker.parts import Parts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep found and did."""

    num_seen: int = 0
    num_absent: int = 0
    strays: tuple[str, ...] = ()
    """Ours by name, of no live row, and older than the grace."""
    ended: tuple[str, ...] = ()
    """What was told to end: of a dry run those alone that an operator named."""


def sweep(
    parts: Parts, clouds: Clouds, *, dry_run: bool = False, now: datetime | None = None
) -> Swept | None:
    """Look once; None when nobody answers."""
    now = now or utc_now()
    try:
        seen = clouds.sightings()
    except CloudsUnreachable as fault:
        log.warning("clusters were not looked at: %s", fault)
        return None
    with parts.database.transaction() as session:
        num_absent = _note(session, seen, now=now)
        met = _meet(session, seen, now=now)
        strays = tuple(sorted(each.name for each in met if each.met_at <= now - GRACE))
        wanted = _to_end(met, () if dry_run else strays, now=now)
    ended = tuple(name for name in wanted if _end(parts, clouds, name, now=now))
    if strays:
        log.warning("clusters without an owner: %s; ended: %s", strays, ended)
    return Swept(num_seen=len(seen), num_absent=num_absent, strays=strays, ended=ended)


def _note(session: Session, seen: Mapping[str, Sighting], *, now: datetime) -> int:
    """Write into every cluster that is up whether it was there; returns how many were not."""
    query = select(Cluster, Attempt).join(Attempt, Attempt.id == Cluster.attempt_id)
    query = query.where(Cluster.state == ClusterState.UP.value).order_by(Cluster.id)
    free = query.with_for_update(of=Cluster, skip_locked=True, key_share=True)
    num_absent = 0
    for cluster, attempt in session.execute(free):
        sighting = seen.get(cluster.name)
        num_absent += sighting is None
        rows.write_sighting(cluster, fold_sweep(rows.bare(cluster, attempt), sighting, now))
    return num_absent


def _meet(
    session: Session, seen: Mapping[str, Sighting], *, now: datetime
) -> Sequence[StrayCluster]:
    """Return clusters that carry our tag and that no live row knows.

    When each was first met is kept: a restarted worker does not begin to count anew.
    """
    ours = prefix(deployment_tag(session))
    query = select(Cluster.name).where(Cluster.state != ClusterState.GONE.value)
    live = set(session.scalars(query))
    met = {stray.name: stray for stray in session.scalars(select(StrayCluster))}
    strays = {name for name in seen if name.startswith(ours) and name not in live}
    for name in met.keys() - strays:
        session.delete(met.pop(name))
    for name in strays - met.keys():
        met[name] = StrayCluster(name=name, met_at=now)
        session.add(met[name])
    return list(met.values())


def _to_end(met: Sequence[StrayCluster], strays: Sequence[str], *, now: datetime) -> Sequence[str]:
    """Return names of these and of what an operator wants ended now: who was never told first.

    One that was told to end just now is left out: it takes minutes.
    """
    wanted = [each for each in met if each.name in strays or each.end_asked_at is not None]
    never = [each.name for each in wanted if each.end_told_at is None]
    again = [
        (each.end_told_at, each.name)
        for each in wanted
        if each.end_told_at is not None and each.end_told_at <= now - DOWN_AGAIN
    ]
    return [*sorted(never), *(name for _, name in sorted(again))]


def _end(parts: Parts, clouds: Clouds, name: str, *, now: datetime) -> bool:
    """Tell one to end, and note it at once: the next ones may take longer than the task has."""
    try:
        clouds.down(name)
    except CloudsUnreachable as fault:
        log.warning("%s is not ended yet: %s", name, fault)
        return False
    with parts.database.transaction() as session:
        told = update(StrayCluster).where(StrayCluster.name == name)
        session.execute(told.values(end_told_at=now))
    return True
