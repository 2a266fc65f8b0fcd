"""Finds due runs and clusters: those that only wait are deferred together, the others get a task.

Of a thousand active runs a handful needs a step in any second. A sweep tells them apart in a few
statements, so that a healthy run costs neither a task nor a transaction of its own.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import update
from sqlalchemy.orm import Session

from api.clusters import leases
from api.runs.api_liveness import is_api_alive
from api.runs.journal import utc_now
from api.runs.leases import due_runs
from api.scheduling.outages import clock, deferral, extensions, sweep_mark
from api.tables import Cluster
from worker.clusters import rows
from worker.clusters.decide import Wait, decide
from worker.context import WorkerContext

log = logging.getLogger(__name__)

MAX_DUE = 5000
"""Due clusters that one sweep decides on."""
MAX_TASKS = 100
"""Tasks that one sweep sends: more than a worker does before the next sweep would be sent twice."""


def runs(context: WorkerContext, *, now: datetime | None = None) -> Sequence[str]:
    """Defer the healthy runs; return ids of those that need a task, in order.

    First, deadlines that passed while no worker ran are reset, and leases of runners are extended
    while no API process is alive to receive their heartbeats. The same after the clock was set; set
    back, it leaves times in the future, which are brought to now. Runs whose turn for a slot has
    come are among those returned.
    """
    now = now or utc_now()
    with context.database.transaction() as session:
        last = sweep_mark.last_completed_at(session)
        went_back = sweep_mark.is_ahead(last, now)
        if went_back:
            num_early = clock.pull_back(session, now=now)
            log.warning("the clock was set back: %d runs were due too late", num_early)
        after_outage = went_back or sweep_mark.was_down(last, now)
        is_api_down = not is_api_alive(session)
        num_unreachable = (
            extensions.mark_api_unreachable(session, now=now) if is_api_down or after_outage else 0
        )
        if num_unreachable:
            log.warning("no API process is alive for the nodes of %d clusters", num_unreachable)
        num_reset = extensions.reset_deadlines(session, now=now) if after_outage else 0
        if num_reset:
            log.warning("deadlines of %d runs reset: no worker ran for a while", num_reset)
        num_extended = (
            extensions.extend_leases_while_api_down(session, now=now) if is_api_down else 0
        )
        if num_extended:
            log.warning("no API process is alive: leases of %d attempts extended", num_extended)
        deferral.defer_idle(session, now=now)
        deferral.wake_next(session, now=now)
        due_ids = due_runs(session, now=now, limit=MAX_TASKS)
        sweep_mark.mark(session, now=now)
    return due_ids


def clusters(context: WorkerContext, *, now: datetime | None = None) -> Sequence[str]:
    """Defer the clusters whose next action is `Wait`; return ids of the others, in order.

    The same as a tick that waits before it has called any cloud. The rows are locked meanwhile, so
    no tick works on them.
    """
    now = now or utc_now()
    later: defaultdict[timedelta, list[str]] = defaultdict(list)
    reasons: defaultdict[str | None, list[str]] = defaultdict(list)
    due_ids = []
    with context.database.transaction() as session:
        rows_due = leases.lock_due(session, now=now, limit=MAX_DUE)
        for cluster, view in zip(rows_due, rows.read(session, rows_due), strict=True):
            action = decide(view, now)
            if isinstance(action, Wait):
                later[action.pause].append(cluster.id)
                if action.why != view.status_reason:
                    reasons[action.why].append(cluster.id)
            else:
                due_ids.append(cluster.id)
        for pause, ids in later.items():
            _write(session, ids, due_at=now + pause)
        for why, ids in reasons.items():
            _write(session, ids, status_reason=why)
    return due_ids[:MAX_TASKS]


def _write(session: Session, ids: Sequence[str], **values: object) -> None:
    statement = update(Cluster).where(Cluster.id.in_(ids)).values(**values)
    session.execute(statement.execution_options(synchronize_session=False))
