"""The queue as a submission finds it: runs that wait, those of the last hour, slots of runners."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from api.scheduling.capacity.quotas import HOUR, is_recent
from api.scheduling.capacity.slots import COUNT, SlotCount
from api.tables import Run
from api.tables.access.errors import QuotaExceeded
from api.tables.access.quotas import lock_submissions

QUEUE_RETRY_S = 60.0
"""When a place in a full queue may be free: nobody knows, so soon."""


class QuotaNear(Exception):
    """So few places are left under a quota that the run must be submitted alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The queue of a project as a run finds it that is submitted."""

    num_ahead: int
    """Runs that wait for a slot of a runner and come before it."""
    slots: SlotCount


def arrive(session: Session, project_id: str, *, now: datetime, is_alone: bool = True) -> Arrival:
    """Return the queue before a run that is submitted now, in one statement with the quotas' use.

    A statement for each would count the same waiting runs twice: with 4,000 of them, half a
    millisecond more of the database.

    Submissions that are not alone do not wait for each other. None of them sees the others before
    they are committed, of which there are fewer than the database has connections: while so many
    places are left, all of them fit. A submission that is alone waits until those have ended.

    Raises:
        QuotaExceeded: the project may not submit another run now.
        QuotaNear: whether it may is only known when it is alone, and it is not.
    """
    quotas, most_others = lock_submissions(session, project_id, is_alone=is_alone)
    limits = quotas.limits
    most_waiting, most_recent = limits["queued_runs"], limits["submissions_per_hour"]
    # After the lock: a statement does not see what was committed while it waited.
    facts = {
        "project_id": project_id,
        "most_waiting": most_waiting,
        "most_recent": most_recent,
        "since": now - HOUR,
        "now": now,
    }
    counts = session.connection().execute(_COUNTS, facts).one()
    num_waiting = counts.for_runners + counts.for_clusters
    if num_waiting >= most_waiting:
        raise QuotaExceeded(
            f"The project's quota of {most_waiting} queued runs is used up: wait until one starts,"
            " cancel one, or ask the operator for more.",
            retry_after_s=QUEUE_RETRY_S,
        )
    if counts.recent >= most_recent:
        raise QuotaExceeded(
            f"The project's quota of {most_recent} submissions per hour is used up: submit later,"
            " or ask the operator for more.",
            retry_after_s=_until_one_is_old(session, project_id, now=now),
        )
    num_left = min(most_waiting - num_waiting, most_recent - counts.recent)
    if num_left < most_others and not is_alone:
        raise QuotaNear
    slots = SlotCount(is_connected=counts.is_connected, num_unpromised=counts.num_unpromised)
    return Arrival(num_ahead=counts.for_runners - counts.younger, slots=slots)


_WAITING = """
SELECT count(*) FROM (SELECT FROM runs
  WHERE project_id = :project_id AND queue_class = '{queue_class}'
    AND status IN ('queued', 'recovering') AND deleting_at IS NULL LIMIT :most_waiting) waiting
"""
_COUNTS = text(f"""
SELECT
  ({_WAITING.format(queue_class="runner")}) AS for_runners,
  ({_WAITING.format(queue_class="cluster")}) AS for_clusters,
  -- Another submission of this moment, which was committed earlier.
  (SELECT count(*) FROM runs
     WHERE project_id = :project_id AND queue_class = 'runner' AND status = 'queued'
       AND created_at > :now AND deleting_at IS NULL) AS younger,
  (SELECT count(*) FROM (SELECT FROM runs
     WHERE project_id = :project_id AND created_at > :since AND origin IS NULL
       AND deleting_at IS NULL LIMIT :most_recent) recent)
  + (SELECT count(*) FROM deleted_runs
     WHERE project_id = :project_id AND created_at > :since AND submitted_at > :since) AS recent,
  slots.*
FROM ({COUNT}) slots
""")
"""A text that is made once: every submission executes it, and to build the same of expressions
takes twice the CPU time. Of the last hour's runs the deleted ones count too."""


def _until_one_is_old(session: Session, project_id: str, *, now: datetime) -> float:
    """Return the seconds until the oldest submission of the last hour no longer counts."""
    oldest = session.scalar(
        select(func.min(Run.created_at)).where(Run.project_id == project_id, is_recent(now))
    )
    return max(1.0, (oldest + HOUR - now).total_seconds()) if oldest is not None else 3600.0
