"""Exclusions of a dataset: single tasks and whole environments, each with a reason.

Versions built while an exclusion is in force leave its task out, and its environment if the
exclusion has no end. With an end the environment is in quarantine: it stays in versions, which
outlive the quarantine, and until then no run gets its tasks.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, case, delete, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.datasets import store
from api.datasets.errors import DatasetNotFound, DatasetRejected, ExclusionNotFound
from api.tables import Dataset, DatasetExclusion
from api.tables.ids import new_id
from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.rows import printable


def find_dataset(
    session: Session, project_id: str, name: str, drafts: Sequence[Exclusion]
) -> Dataset:
    """Return the dataset to exclude from.

    Raises:
        DatasetNotFound: it has no version yet; the message shows how to create the first one with
            these exclusions.
    """
    try:
        return store.find_dataset(session, project_id, name)
    except DatasetNotFound as error:
        first = drafts[0].model_dump(mode="json", exclude_defaults=True)
        raise DatasetNotFound(
            f"There is no dataset {name!r} yet: its first version creates it, with exclusions in"
            f" the option `exclusions`, such as {json.dumps([first], ensure_ascii=False)}"
            f" (hillclimb datasets create {name} FILE --set 'exclusions=[…]')."
        ) from error


def add(
    session: Session,
    dataset: Dataset,
    drafts: Sequence[Exclusion],
    *,
    actor: str,
    with_version: bool = False,
) -> list[DatasetExclusion]:
    """Add exclusions; one that exists gets the new reason and end.

    Locks the dataset's row until the transaction ends: a version that is being stored is either
    built with these exclusions or older than they are. `with_version` gives them the version's
    time.

    Raises:
        DatasetRejected: no version has an environment that would be in quarantine.
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
    # An expired exclusion starts anew; one in force keeps its time.
    is_expired = DatasetExclusion.expires_at <= now
    changed["created_at"] = case((is_expired, now), else_=DatasetExclusion.created_at)
    upsert = statement.on_conflict_do_update(
        index_elements=["dataset_id", "scope", "key"], set_=changed
    )
    added = session.scalars(
        upsert.returning(DatasetExclusion), execution_options={"populate_existing": True}
    )
    return sorted(added, key=lambda exclusion: (exclusion.scope, exclusion.key))


def check_ends(drafts: Sequence[Exclusion], *, now: datetime) -> None:
    """Reject exclusions that have expired already.

    Raises:
        DatasetRejected: an exclusion ends in the past.
    """
    expired = next((draft for draft in drafts if not draft.is_active(now)), None)
    if expired is not None:
        raise DatasetRejected(
            f"The exclusion of {expired.key!r} ends at {expired.expires_at}, which is in the past:"
            " set a later end, or none."
        )


def remove(session: Session, dataset: Dataset, exclusion_id: str) -> None:
    """Delete an exclusion, effective with the next version or run; raises ExclusionNotFound."""
    condition = (DatasetExclusion.dataset_id == dataset.id) & (DatasetExclusion.id == exclusion_id)
    result = session.execute(delete(DatasetExclusion).where(condition))
    assert isinstance(result, CursorResult)
    if not result.rowcount:
        raise ExclusionNotFound(f"Dataset {dataset.name!r} has no exclusion {exclusion_id!r}.")


def counts_at_building(exclusion: Exclusion) -> bool:
    """Return True if new versions leave it out; an environment in quarantine stays in them."""
    return exclusion.scope == "task" or exclusion.expires_at is None


def as_contract(exclusion: DatasetExclusion) -> Exclusion:
    """Return a stored exclusion as the value that the version builder uses."""
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
    """Reject a quarantine of an environment that no version has: it would have no effect."""
    named = {draft.key for draft in drafts if not counts_at_building(draft)}
    known = store.environments(session, dataset) if named else frozenset()
    if unknown := sorted(named - known):
        close = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known)[:20])}"
        raise DatasetRejected(
            f"No version of {dataset.name} has an environment {printable(unknown[0])!r} to put in"
            f" quarantine; {hint}"
        )
