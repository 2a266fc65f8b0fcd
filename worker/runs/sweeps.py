"""What the clock's rounds find due: what only waits is put off together, the rest is sent for.

Of a thousand runs at work a handful needs a step in any second. A round tells them apart in a few
statements, so that a tick of a run that is well costs neither a task nor a transaction of its own.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import update
from sqlalchemy.orm import Session

from api.clusters import leases
from api.runs import absence, quiet
from api.runs.journal import utc_now
from api.runs.leases import due_runs
from api.tables import Cluster
from worker.clusters import rows
from worker.clusters.decide import Wait, decide
from worker.parts import Parts

log = logging.getLogger(__name__)

AT_ONCE = 5000
"""Due runs, or clusters, that one round looks at."""
SENT_AT_ONCE = 100
"""Of those that need a look: more than a worker takes before the next round would come twice."""


def runs(parts: Parts, *, now: datetime | None = None) -> Sequence[str]:
    """Put off the runs that are well; return ids of those that need a look, in order.

    What lasted too long while nobody looked is first given its time again, and what is held
    is held on while nobody can hear of it.
    """
    now = now or utc_now()
    with parts.database.transaction() as session:
        num_shut_out = absence.note_shut_out(session, now=now)
        if num_shut_out:
            log.warning("no API process was there for the nodes of %d clusters", num_shut_out)
        num_forgiven = absence.forgive_runs(session, now=now)
        if num_forgiven:
            log.warning("nobody looked at %d runs for a while: deadlines anew", num_forgiven)
        num_held = absence.hold_unheard(session, now=now)
        if num_held:
            log.warning("no API process is there: %d attempts are held on", num_held)
        quiet.put_off(session, now=now)
        return due_runs(session, now=now, limit=SENT_AT_ONCE)


def clusters(parts: Parts, *, now: datetime | None = None) -> Sequence[str]:
    """Put off the clusters for which there is only to wait; return ids of the others, in order.

    That is what a tick would do that decides to wait before it has asked anybody: the rows are
    held while it is decided, so none is worked on meanwhile.
    """
    now = now or utc_now()
    later: defaultdict[timedelta, list[str]] = defaultdict(list)
    news: defaultdict[str | None, list[str]] = defaultdict(list)
    needy = []
    with parts.database.transaction() as session:
        due = leases.take_due(session, now=now, limit=AT_ONCE)
        for cluster, view in zip(due, rows.read(session, due), strict=True):
            action = decide(view, now)
            if isinstance(action, Wait):
                later[action.pause].append(cluster.id)
                if action.why != view.waits_for:
                    news[action.why].append(cluster.id)
            else:
                needy.append(cluster.id)
        for pause, ids in later.items():
            _write(session, ids, due_at=now + pause)
        for why, ids in news.items():
            _write(session, ids, waits_for=why)
    return needy[:SENT_AT_ONCE]


def _write(session: Session, ids: Sequence[str], **values: object) -> None:
    changed = update(Cluster).where(Cluster.id.in_(ids)).values(**values)
    session.execute(changed.execution_options(synchronize_session=False))
