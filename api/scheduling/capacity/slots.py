"""Runner slots of a project: how many its connected runners have free, how many are promised."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from api.runs.status import RunStatus
from api.scheduling.capacity import quotas
from api.tables import Run, Runner
from api.tables.ids import lock_key

LOCK_SPACE = 0x534C4F54
"""First key of the advisory lock under which slots of a project are counted and scheduled."""


def lock(session: Session, project_id: str) -> None:
    """Serialize the scheduling of a project until the transaction ends."""
    session.execute(select(func.pg_advisory_xact_lock(LOCK_SPACE, lock_key(project_id))))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCount:
    """The slots of a project's connected runners."""

    is_connected: bool
    """A runner with a valid lease accepts attempts of the project."""
    num_unpromised: int
    """Slots that no claimed attempt occupies, without one for each attempt that is scheduled for
    runners and not claimed yet; below 0 where more are scheduled than can be claimed."""


COUNT = """
SELECT count(*) > 0 AS is_connected,
  -- A runner that came back with fewer slots may have more attempts than slots.
  coalesce(sum(greatest(0, slots - (SELECT count(*) FROM attempts
     WHERE runner_id = runners.id AND state IN ('claimed', 'running')))), 0)
  - (SELECT count(*) FROM attempts JOIN runs ON runs.id = attempts.run_id
     WHERE attempts.state = 'scheduled' AND runs.project_id = :project_id
       AND runs.queue_class = 'runner' AND runs.deleting_at IS NULL) AS num_unpromised
FROM runners WHERE project_id = :project_id AND lease_until > :now AND NOT draining
"""
_OLDER = "(created_at, id) < (:created_at, :run_id)"
_AHEAD = {
    None: "true",
    RunStatus.QUEUED.value: f"status = 'recovering' OR status = 'queued' AND {_OLDER}",
    RunStatus.RECOVERING.value: f"status = 'recovering' AND {_OLDER}",
}
"""Which waiting runs come first, by the status of the run before which they count."""
_COUNT_ALONE = text(COUNT)
_COUNT_WITH_WAITING = {
    status: text(
        "SELECT (SELECT count(*) FROM runs WHERE project_id = :project_id"
        f" AND queue_class = 'runner' AND status IN ('queued', 'recovering') AND ({comes_first})"
        f" AND deleting_at IS NULL), counted.* FROM ({COUNT}) counted"
    )
    for status, comes_first in _AHEAD.items()
}
"""Texts that are made once: every submission and every look at a waiting run executes one, and to
build it of expressions takes a tenth of the CPU time of a submission."""


def count(session: Session, project_id: str, *, now: datetime) -> SlotCount:
    """Return the slots of the project's connected runners."""
    facts = {"project_id": project_id, "now": now}
    is_connected, num_unpromised = session.connection().execute(_COUNT_ALONE, facts).one()
    return SlotCount(is_connected=is_connected, num_unpromised=num_unpromised)


def count_with_waiting(
    session: Session, project_id: str, *, before: Run | None, now: datetime
) -> tuple[int, SlotCount]:
    """Return how many runs wait for a slot, before one of them or in all; and the slots."""
    facts: dict[str, object] = {"project_id": project_id, "now": now}
    if before is not None:
        facts |= {"created_at": before.created_at, "run_id": before.id}
    query = _COUNT_WITH_WAITING[before.status if before is not None else None]
    ahead, is_connected, num_unpromised = session.connection().execute(query, facts).one()
    return ahead, SlotCount(is_connected=is_connected, num_unpromised=num_unpromised)


def num_startable(session: Session, project_id: str, *, now: datetime) -> int:
    """Return how many waiting runs could get a slot now: free, not promised, within the quota."""
    free = count(session, project_id, now=now).num_unpromised
    return min(free, quotas.num_startable(session, project_id)) if free > 0 else 0


def with_runners(session: Session, *, now: datetime) -> set[str]:
    """Return the projects of which a connected runner accepts attempts."""
    live = (Runner.lease_until > now, Runner.draining.is_(False))
    return set(session.scalars(select(Runner.project_id).where(*live).distinct()))
