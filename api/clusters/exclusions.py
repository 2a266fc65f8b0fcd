"""Cloud exclusions: machines whose launch failed recently are tried last until a time.

They apply to all projects. A soft preference: without other candidates they are tried again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.clusters.errors import CloudExclusionNotFound
from api.tables import CloudExclusion
from hillclimb.spec.backend.skypilot import CandidateSpec

_OTHERS_NAMES = re.compile(r"\b(?:hc-[0-9a-z]{4}-[0-9a-z]{10}-[0-9]+|[a-z]{2,5}_[0-9a-z]{20,30})")
"""Names of clusters and ids: an exclusion is shown to every project, and comes from the run of one.
"""


def in_force(session: Session, *, now: datetime) -> Sequence[CloudExclusion]:
    """Return the exclusions in force, the longest first."""
    query = select(CloudExclusion).where(CloudExclusion.until > now)
    return session.scalars(query.order_by(CloudExclusion.until.desc(), CloudExclusion.id)).all()


def concerns(exclusion: CloudExclusion, candidate: CandidateSpec) -> bool:
    """Return True when the exclusion covers the candidate: a whole cloud covers its regions."""
    infra = exclusion.infra
    is_there = candidate.infra == infra or candidate.infra.startswith(f"{infra}/")
    return is_there and exclusion.sku in (None, sku_of(candidate))


def describe(
    candidates: Iterable[CandidateSpec], exclusions: Sequence[CloudExclusion]
) -> tuple[str, ...]:
    """Return a sentence for each excluded candidate: until when, and why."""
    return tuple(
        f"{each.label} is tried after the others until {one.until:%H:%M} UTC:"
        f" {one.reason.rstrip('.')}."
        for each in candidates
        for one in exclusions
        if concerns(one, each)
    )


def exclude(
    session: Session, candidate: CandidateSpec, reason: str, *, until: datetime, now: datetime
) -> None:
    """Exclude a candidate that failed; replaces an earlier exclusion of it.

    The reason loses what names a run of one project.
    """
    reason = _OTHERS_NAMES.sub("…", reason)
    row = insert(CloudExclusion).values(
        id=_id(candidate),
        infra=candidate.infra,
        sku=sku_of(candidate),
        reason=reason,
        until=until,
        created_at=now,
    )
    changes = {"reason": reason, "until": until, "created_at": now}
    session.execute(row.on_conflict_do_update(index_elements=[CloudExclusion.id], set_=changes))


def lift(session: Session, candidate: CandidateSpec) -> None:
    """Delete the exclusion of a candidate: its launch succeeded."""
    session.execute(delete(CloudExclusion).where(CloudExclusion.id == _id(candidate)))


def remove(session: Session, exclusion_id: str) -> None:
    """Delete an exclusion by id. Raises CloudExclusionNotFound."""
    exclusion = session.get(CloudExclusion, exclusion_id)
    if exclusion is None:
        raise CloudExclusionNotFound(
            f"There is no cloud exclusion {exclusion_id}: it may have expired. `hillclimb clouds`"
            " lists those in force."
        )
    session.delete(exclusion)


def sku_of(candidate: CandidateSpec) -> str:
    """Return the name of a candidate's machines; spot machines have another one."""
    return f"{candidate.accelerators or 'no GPU'}{' (spot)' * candidate.use_spot}"


def _id(candidate: CandidateSpec) -> str:
    """Return the id of the one row for a kind of machine."""
    name = f"{candidate.infra}|{sku_of(candidate)}"
    return f"cex_{hashlib.sha256(name.encode()).hexdigest()[:20]}"
