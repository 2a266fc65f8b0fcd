"""Exclusions of a dataset: single tasks and whole environments, each with a reason.

A task is left out of every version built while its exclusion is in force. So is an environment
that is excluded for good; one in quarantine (its exclusion has an end) stays in the versions, which
outlive the quarantine, and no run gets its tasks before the end.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, case, delete, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.datasets import store
from api.datasets.errors import DatasetRejected, ExclusionNotFound
from api.tables import Dataset, DatasetExclusion
from api.tables.ids import new_id
from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.rows import printable


def add(
    session: Session,
    dataset: Dataset,
    drafts: Sequence[Exclusion],
    *,
    actor: str,
    with_version: bool = False,
) -> list[DatasetExclusion]:
    """Keep these out from now on; one that is kept out already gets the new reason and end.

    The dataset's row is locked until the transaction ends: a version that is being stored either
    has been built with these, or is older than they are. `with_version`: they come with a version,
    and are as old as it is.

    Raises:
        DatasetRejected: one would put an environment in quarantine that no version has.
    """
    store.lock(session, dataset)
    _check_environments(session, dataset, drafts)
    now = func.now() if with_version else func.clock_timestamp()
    rows = {
        (draft.scope, draft.key): {
            "id": new_id("dsx"),
            "project_id": dataset.project_id,
            "dataset_id": dataset.id,
            "created_by": actor,
            "created_at": now,
            **draft.model_dump(),
        }
        for draft in drafts
    }
    if not rows:
        return []
    statement = insert(DatasetExclusion).values(list(rows.values()))
    changed: dict[str, Any] = {
        name: statement.excluded[name] for name in ("reason", "source", "expires_at", "created_by")
    }
    # One that was over begins anew; one in force has been since it was made.
    is_over = DatasetExclusion.expires_at <= now
    changed["created_at"] = case((is_over, now), else_=DatasetExclusion.created_at)
    upsert = statement.on_conflict_do_update(
        index_elements=["dataset_id", "scope", "key"], set_=changed
    )
    exclusions_in_force = session.scalars(
        upsert.returning(DatasetExclusion), execution_options={"populate_existing": True}
    )
    return sorted(exclusions_in_force, key=lambda each: (each.scope, each.key))


def check_ends(drafts: Sequence[Exclusion], *, now: datetime) -> None:
    """Refuse exclusions that would be over as soon as they are made.

    Raises:
        DatasetRejected: one of them ends in the past.
    """
    late = next((draft for draft in drafts if not draft.is_active(now)), None)
    if late is not None:
        raise DatasetRejected(
            f"The exclusion of {late.key!r} ends at {late.expires_at}, which is over: give a later"
            " end, or none."
        )


def remove(session: Session, dataset: Dataset, exclusion_id: str) -> None:
    """Let it in again, from the next version or run on; raises ExclusionNotFound."""
    mine = (DatasetExclusion.dataset_id == dataset.id) & (DatasetExclusion.id == exclusion_id)
    result = session.execute(delete(DatasetExclusion).where(mine))
    assert isinstance(result, CursorResult)
    if not result.rowcount:
        raise ExclusionNotFound(f"Dataset {dataset.name!r} has no exclusion {exclusion_id!r}.")


def counts_at_building(exclusion: Exclusion) -> bool:
    """Return whether a new version leaves it out; a quarantined environment stays in."""
    return exclusion.scope == "task" or exclusion.expires_at is None


def as_contract(exclusion: DatasetExclusion) -> Exclusion:
    """Return a stored exclusion as the value that versions are built with."""
    return Exclusion.model_validate(
        {name: getattr(exclusion, name) for name in Exclusion.model_fields}
    )


def exclusion_facts(exclusion: DatasetExclusion, *, now: datetime) -> dict[str, Any]:
    """Return an exclusion as JSON."""
    ends = exclusion.expires_at
    return {
        "object": "exclusion",
        "id": exclusion.id,
        "scope": exclusion.scope,
        "key": exclusion.key,
        "reason": exclusion.reason,
        "source": exclusion.source,
        "expires_at": ends,
        "in_force": ends is None or ends > now,
        "created_by": exclusion.created_by,
        "created_at": exclusion.created_at,
    }


def _check_environments(session: Session, dataset: Dataset, drafts: Sequence[Exclusion]) -> None:
    """Refuse quarantines of environments that no version has: no run could ever be spared them."""
    named = {each.key for each in drafts if not counts_at_building(each)}
    there = store.environments(session, dataset) if named else frozenset()
    if strangers := sorted(named - there):
        close = difflib.get_close_matches(strangers[0], there, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(there)[:20])}"
        raise DatasetRejected(
            f"No version of {dataset.name} has an environment {printable(strangers[0])!r} to put in"
            f" quarantine; {hint}"
        )
