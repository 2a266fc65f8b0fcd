"""Runner slots of a project: how many its connected runners have free, how many are promised."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from api.scheduling.capacity import quotas
from api.tables import Runner

LOCK_SPACE = 0x534C4F54
"""First key of the advisory lock under which slots of a project are counted and scheduled."""


def lock(session: Session, project_id: str) -> None:
    """Serialize the scheduling of a project until the transaction ends."""
    key = zlib.crc32(project_id.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(LOCK_SPACE, key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCount:
    """The slots of a project's connected runners."""

    is_connected: bool
    """A runner with a valid lease accepts attempts of the project."""
    num_unpromised: int
    """Slots that no claimed attempt occupies, without one for each attempt that is scheduled for
    runners and not claimed yet; below 0 where more are scheduled than can be claimed."""


_COUNT = text("""
SELECT count(*) > 0,
  -- A runner that came back with fewer slots may have more attempts than slots.
  coalesce(sum(greatest(0, slots - (SELECT count(*) FROM attempts
     WHERE runner_id = runners.id AND state IN ('claimed', 'running')))), 0)
  - (SELECT count(*) FROM attempts JOIN runs ON runs.id = attempts.run_id
     WHERE attempts.state = 'scheduled' AND runs.project_id = :project_id
       AND runs.queue_class = 'runner' AND runs.deleting_at IS NULL)
FROM runners WHERE project_id = :project_id AND lease_until > :now AND NOT draining
""")
"""A text that is made once: every submission and every look at a waiting run executes it."""


def count(session: Session, project_id: str, *, now: datetime) -> SlotCount:
    """Return the slots of the project's connected runners."""
    facts = {"project_id": project_id, "now": now}
    is_connected, num_unpromised = session.connection().execute(_COUNT, facts).one()
    return SlotCount(is_connected=is_connected, num_unpromised=num_unpromised)


def num_startable(session: Session, project_id: str, *, now: datetime) -> int:
    """Return how many waiting runs could get a slot now: free, not promised, within the quota."""
    free = count(session, project_id, now=now).num_unpromised
    return min(free, quotas.num_startable(session, project_id)) if free > 0 else 0


def with_runners(session: Session, *, now: datetime) -> set[str]:
    """Return the projects of which a connected runner accepts attempts."""
    live = (Runner.lease_until > now, Runner.draining.is_(False))
    return set(session.scalars(select(Runner.project_id).where(*live).distinct()))
