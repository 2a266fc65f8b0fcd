"""What was learnt of the clouds: machines that failed of late are asked for last, for a while.

The operator's, not a project's. Advice and no wall: with nothing else left they are asked again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.clusters.errors import CloudExclusionNotFound
from api.tables import CloudExclusion
from trainer.contract.clusters.spec import CandidateSpec


def in_force(session: Session, *, now: datetime) -> Sequence[CloudExclusion]:
    """Return what is asked for last now, the longest first."""
    query = select(CloudExclusion).where(CloudExclusion.until > now)
    return session.scalars(query.order_by(CloudExclusion.until.desc(), CloudExclusion.id)).all()


def concerns(learnt: CloudExclusion, candidate: CandidateSpec) -> bool:
    """Say whether the candidate is what failed: a whole cloud stands for its regions."""
    is_there = candidate.infra == learnt.infra or candidate.infra.startswith(f"{learnt.infra}/")
    return is_there and learnt.sku in (None, sku_of(candidate))


def told(candidates: Iterable[CandidateSpec], learnt: Sequence[CloudExclusion]) -> tuple[str, ...]:
    """Say which of the candidates are asked for last, until when, and why."""
    return tuple(
        f"{each.label} is asked for after the others until {one.until:%H:%M} UTC:"
        f" {one.reason.rstrip('.')}."
        for each in candidates
        for one in learnt
        if concerns(one, each)
    )


def exclude(
    session: Session, candidate: CandidateSpec, reason: str, *, until: datetime, now: datetime
) -> None:
    """Write down that a candidate failed; later than before counts."""
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


def forgive(session: Session, candidate: CandidateSpec) -> None:
    """Take back what was learnt of a candidate: it could be had."""
    session.execute(delete(CloudExclusion).where(CloudExclusion.id == _id(candidate)))


def clear(session: Session, exclusion_id: str) -> None:
    """Take one back by hand. Raises CloudExclusionNotFound."""
    found = session.get(CloudExclusion, exclusion_id)
    if found is None:
        raise CloudExclusionNotFound(
            f"Nothing learnt has the id {exclusion_id}: it may be over. `hillclimb clouds` lists"
            " what is in force."
        )
    session.delete(found)


def sku_of(candidate: CandidateSpec) -> str:
    """Return the machines that a candidate names; spot machines are others."""
    return f"{candidate.accelerators or 'no GPU'}{' (spot)' * candidate.use_spot}"


def _id(candidate: CandidateSpec) -> str:
    """One row for each kind of machine, whoever writes it."""
    name = f"{candidate.infra}|{sku_of(candidate)}"
    return f"cex_{hashlib.sha256(name.encode()).hexdigest()[:20]}"
