"""Polls all clusters at once: stores which exist, and terminates those without an owner.

Each query takes the API server a second or more, so ticks of running clusters send none: they read
what the last sweep stored. A sweep that gets no answer writes nothing: unreachable is not dead.
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
from api.runs.deadlines import ORPHAN_GRACE
from api.runs.journal import utc_now
from api.tables import Attempt, Cluster, OrphanedCluster
from worker.clusters import rows
from worker.clusters.transitions import apply_sweep
from worker.context import WorkerContext
from worker.deadlines import TERMINATION_RETRY
from worker.skypilot.port import CloudCluster, Clouds, CloudsUnreachable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """Counts of one sweep, and the orphaned clusters it dealt with."""

    num_seen: int = 0
    num_absent: int = 0
    orphans: tuple[str, ...] = ()
    """Clusters with our name prefix, no live row, and first seen longer ago than the grace."""
    terminated: tuple[str, ...] = ()
    """Orphans whose termination was requested; in a dry run only those that an operator named."""


def sweep(
    context: WorkerContext, clouds: Clouds, *, dry_run: bool = False, now: datetime | None = None
) -> SweepReport | None:
    """Poll all clusters once; None when the API server does not answer."""
    now = now or utc_now()
    try:
        clusters = clouds.list_clusters()
    except CloudsUnreachable as fault:
        log.warning("clusters were not polled: %s", fault)
        return None
    with context.database.transaction() as session:
        num_absent = _store_observations(session, clusters, now=now)
        orphan_rows = _update_orphans(session, clusters, now=now)
        orphans = tuple(
            sorted(each.name for each in orphan_rows if each.first_seen_at <= now - ORPHAN_GRACE)
        )
        due = _due_for_termination(orphan_rows, () if dry_run else orphans, now=now)
    terminated = tuple(name for name in due if _terminate(context, clouds, name, now=now))
    if orphans:
        log.warning("orphaned clusters: %s; terminated: %s", orphans, terminated)
    return SweepReport(
        num_seen=len(clusters), num_absent=num_absent, orphans=orphans, terminated=terminated
    )


def _store_observations(
    session: Session, clusters: Mapping[str, CloudCluster], *, now: datetime
) -> int:
    """Store for every running cluster whether it exists; returns the count of absent ones.

    Rows that a tick has locked are skipped: the next sweep comes in 15 s.
    """
    query = select(Cluster, Attempt).join(Attempt, Attempt.id == Cluster.attempt_id)
    query = query.where(Cluster.state == ClusterState.RUNNING.value).order_by(Cluster.id)
    free = query.with_for_update(of=Cluster, skip_locked=True, key_share=True)
    num_absent = 0
    for cluster, attempt in session.execute(free):
        observed = clusters.get(cluster.name)
        num_absent += observed is None
        rows.write_sweep(cluster, apply_sweep(rows.bare(cluster, attempt), observed, now))
    return num_absent


def _update_orphans(
    session: Session, clusters: Mapping[str, CloudCluster], *, now: datetime
) -> Sequence[OrphanedCluster]:
    """Store and return the clusters with our tag and no live row.

    The time of the first sighting is stored: a restarted worker must not restart the grace.
    """
    ours = prefix(deployment_tag(session))
    query = select(Cluster.name).where(Cluster.state != ClusterState.TERMINATED.value)
    live = set(session.scalars(query))
    rows_by_name = {orphan.name: orphan for orphan in session.scalars(select(OrphanedCluster))}
    orphans = {name for name in clusters if name.startswith(ours) and name not in live}
    for name in rows_by_name.keys() - orphans:
        session.delete(rows_by_name.pop(name))
    for name in orphans - rows_by_name.keys():
        rows_by_name[name] = OrphanedCluster(name=name, first_seen_at=now)
        session.add(rows_by_name[name])
    return list(rows_by_name.values())


def _due_for_termination(
    orphan_rows: Sequence[OrphanedCluster], orphans: Sequence[str], *, now: datetime
) -> Sequence[str]:
    """Return the names due for a termination request: never requested ones first.

    Due are `orphans` and those an operator named, except where a request is recent: a cluster takes
    minutes to terminate.
    """
    candidates = [
        each
        for each in orphan_rows
        if each.name in orphans or each.terminate_requested_at is not None
    ]
    never = [each.name for each in candidates if each.last_terminated_at is None]
    repeated = [
        (each.last_terminated_at, each.name)
        for each in candidates
        if each.last_terminated_at is not None
        and each.last_terminated_at <= now - TERMINATION_RETRY
    ]
    return [*sorted(never), *(name for _, name in sorted(repeated))]


def _terminate(context: WorkerContext, clouds: Clouds, name: str, *, now: datetime) -> bool:
    """Request one termination and store it at once: the task may be killed in a later one."""
    try:
        clouds.terminate(name)
    except CloudsUnreachable as fault:
        log.warning("%s is not terminated yet: %s", name, fault)
        return False
    with context.database.transaction() as session:
        row = update(OrphanedCluster).where(OrphanedCluster.name == name)
        session.execute(row.values(last_terminated_at=now))
    return True
