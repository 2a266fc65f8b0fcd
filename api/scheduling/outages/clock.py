"""Times in the future, after the service's clock was set back.

Due times and leases were written by the clock as it was before. Until it gets there again, no sweep
would find a run due, nobody could lease what was leased, and no runner would count as lost.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, inspect, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from api.runs.deadlines import CLUSTER_LEASE_S, OUTBOX_LEASE_S, RUN_LEASE_S, RUNNER_LEASE_S
from api.runs.status import CLAIMED_STATES
from api.runs.transitions import set_deadline
from api.scheduling.outages.deferral import ACTIVE
from api.tables import Attempt, Base, Cluster, OutboxMessage, Run, Runner


def pull_back(session: Session, *, now: datetime) -> int:
    """Bring due times and leases that lie in the future back to now; return the number of runs.

    What is due too early is only looked at once more. A lease lasts as long as a new one at most: a
    worker may hold it. Deadlines begin again.
    """
    _limit(session, Run, Run.lease_until, now + timedelta(seconds=RUN_LEASE_S))
    _limit(session, Runner, Runner.lease_until, now + timedelta(seconds=RUNNER_LEASE_S))
    _limit(session, Cluster, Cluster.lease_until, now + timedelta(seconds=CLUSTER_LEASE_S))
    _limit(session, Cluster, Cluster.due_at, now)
    until = now + timedelta(seconds=OUTBOX_LEASE_S)
    _limit(session, OutboxMessage, OutboxMessage.lease_until, until)
    _limit(session, OutboxMessage, OutboxMessage.next_attempt_at, now)
    live = Attempt.state.in_(CLAIMED_STATES)
    for seen in (Attempt.last_held_at, Attempt.last_event_at):
        _limit(session, Attempt, seen, now, live)
    late = select(Run).where(Run.status.in_(ACTIVE), Run.deadline_at > now)
    for run in session.scalars(late.with_for_update(skip_locked=True, key_share=True)):
        set_deadline(run, now=now)
    session.flush()
    return _limit(session, Run, Run.due_at, now)


def _limit(
    session: Session,
    table: type[Base],
    column: InstrumentedAttribute[Any],
    most: datetime,
    *where: ColumnElement[bool],
) -> int:
    """Set a time to `most` where it is later; return the number of rows."""
    statement = update(table).where(column > most, *where).values({column: most})
    returned = statement.returning(*inspect(table).primary_key)
    done = session.execute(returned.execution_options(synchronize_session=False))
    return len(done.all())
