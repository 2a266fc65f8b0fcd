"""Queue positions: the place of a waiting run among those of its project, and why it waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs import store
from api.runs.queue_class import QueueClass, queue_class_of
from api.scheduling.capacity import quotas, slots
from api.scheduling.capacity.arrivals import Arrival
from api.scheduling.capacity.slots import SlotCount
from api.scheduling.provisioning import GiveUp, can_provision
from api.tables import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """A place among the runs of a project that wait for a slot, or for a cluster."""

    position: int
    """1 is next."""
    reason: str | None
    """Why a run at this place waits; null when its turn is now."""


def queue_position(
    session: Session, run: Run, *, now: datetime, arrival: Arrival | None = None
) -> QueuePosition:
    """Return the place of a run that waits.

    Recovering runs come first: they have progress to lose. Then the older run comes first. Of a run
    that is being submitted, `arrival` is what it found.
    """
    if queue_class_of(run) is QueueClass.CLUSTER:
        place = _queue_position_on_cluster(session, run, now=now)
    elif arrival is not None:
        place = _place(arrival.num_ahead, arrival.slots)
    else:
        place = _queue_position(session, run.project_id, before=run, now=now)
    if place.reason is None:
        return replace(place, reason=quotas.full_reason(session, run.project_id))
    return place


def queue_position_of_next(session: Session, project_id: str, *, now: datetime) -> QueuePosition:
    """Return the place that a run would get if it were submitted now."""
    return _queue_position(session, project_id, before=None, now=now)


def queue_position_of_next_on_cluster(
    session: Session, project_id: str, *, now: datetime
) -> QueuePosition:
    """Return the place that a run on a cluster of its own would get if it were submitted now."""
    ahead = store.num_waiting_for_cluster(session, project_id, before=None, now=now)
    is_full = ahead >= clusters.num_free(session, project_id)
    reason = "The project has reached its limit of clusters." if is_full else None
    return QueuePosition(position=1 + ahead, reason=reason)


def _queue_position_on_cluster(session: Session, run: Run, *, now: datetime) -> QueuePosition:
    ahead = store.num_waiting_for_cluster(session, run.project_id, before=run, now=now)
    answer = can_provision(session, run, now=now)
    if answer is None and ahead >= clusters.num_free(session, run.project_id):
        return QueuePosition(position=1 + ahead, reason="Other runs come first.")
    reason = answer.message if isinstance(answer, GiveUp) else answer.why if answer else None
    return QueuePosition(position=1 + ahead, reason=reason)


def _queue_position(
    session: Session, project_id: str, *, before: Run | None, now: datetime
) -> QueuePosition:
    return _place(*slots.count_with_waiting(session, project_id, before=before, now=now))


def _place(ahead: int, counted: SlotCount) -> QueuePosition:
    """Return the place of a run for a runner, behind `ahead` others."""
    reason = None
    if not counted.is_connected:
        reason = "No runner is connected."
    elif counted.num_unpromised <= 0:
        reason = "All runner slots are in use."
    elif ahead >= counted.num_unpromised:
        reason = "Other runs come first."
    return QueuePosition(position=1 + ahead, reason=reason)
