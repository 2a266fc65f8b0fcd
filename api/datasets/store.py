"""Queries of the datasets domain; each takes the project that it may read."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from api.datasets.errors import DatasetNotFound
from api.tables import Dataset, DatasetExclusion, DatasetVersion
from api.tables.ids import new_id

Position = tuple[datetime, str]
"""The end of a page: `created_at` and id of its last dataset."""
MAX_NEIGHBOURS = 1000
"""Names that an unknown one is compared with, the newest."""


def find_dataset(session: Session, project_id: str, name: str) -> Dataset:
    """Return the dataset; raises DatasetNotFound also for datasets of other projects."""
    query = select(Dataset).where(Dataset.project_id == project_id, Dataset.name == name)
    row = session.scalar(query)
    if row is None:
        raise DatasetNotFound(f"There is no dataset {name!r}{_nearest(session, project_id, name)}")
    return row


def _nearest(session: Session, project_id: str, name: str) -> str:
    """Return the end of a sentence: the name that may be meant, or how a dataset comes to be."""
    query = select(Dataset.name).where(Dataset.project_id == project_id)
    names = session.scalars(query.order_by(Dataset.created_at.desc()).limit(MAX_NEIGHBOURS)).all()
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f": `hillclimb datasets create {name} FILE` registers one."


def lock_dataset(session: Session, project_id: str, name: str, *, actor: str) -> Dataset:
    """Return the dataset, created if missing, locked until the transaction ends."""
    row = {
        "id": new_id("ds"),
        "project_id": project_id,
        "name": name,
        "num_versions": 0,
        "created_by": actor,
    }
    session.execute(insert(Dataset).values(**row).on_conflict_do_nothing())
    query = select(Dataset).where(Dataset.project_id == project_id, Dataset.name == name)
    return session.scalars(query.with_for_update(key_share=True)).one()


def lock(session: Session, dataset: Dataset) -> None:
    """Lock the dataset until the transaction ends: serializes versions and exclusions."""
    query = select(Dataset.id).where(Dataset.id == dataset.id)
    session.execute(query.with_for_update(key_share=True))


def list_datasets(
    session: Session, project_id: str, *, after: Position | None, limit: int
) -> Sequence[Dataset]:
    """Return up to `limit` datasets, newest first, that come after the position."""
    query = select(Dataset).where(Dataset.project_id == project_id)
    if after is not None:
        query = query.where(tuple_(Dataset.created_at, Dataset.id) < after)
    query = query.order_by(Dataset.created_at.desc(), Dataset.id.desc()).limit(limit)
    return session.scalars(query).all()


def newest_versions(session: Session, datasets: Collection[Dataset]) -> dict[str, DatasetVersion]:
    """Return the newest versions of these datasets by dataset id; those without one are absent."""
    newest = [(dataset.id, dataset.num_versions) for dataset in datasets]
    key = tuple_(DatasetVersion.dataset_id, DatasetVersion.number)
    rows = session.scalars(select(DatasetVersion).where(key.in_(newest)))
    return {version.dataset_id: version for version in rows}


def list_versions(
    session: Session, dataset: Dataset, *, before: int | None, limit: int
) -> Sequence[DatasetVersion]:
    """Return up to `limit` versions, newest first, with numbers below `before`."""
    query = select(DatasetVersion).where(DatasetVersion.dataset_id == dataset.id)
    if before is not None:
        query = query.where(DatasetVersion.number < before)
    return session.scalars(query.order_by(DatasetVersion.number.desc()).limit(limit)).all()


def find_version(
    session: Session, project_id: str, name: str, number: int | None
) -> tuple[Dataset, DatasetVersion]:
    """Return a version and its dataset; no number means the newest.

    Raises:
        DatasetNotFound: the project has no such dataset, or the dataset no such version; the
            message lists the existing versions.
    """
    dataset = find_dataset(session, project_id, name)
    target = dataset.num_versions if number is None else number
    query = select(DatasetVersion).where(
        DatasetVersion.dataset_id == dataset.id, DatasetVersion.number == target
    )
    row = session.scalar(query)
    if row is None:
        has = _versions_of(dataset)
        raise DatasetNotFound(f"Dataset {name!r} has no version {target}; it has {has}.")
    return dataset, row


def _versions_of(dataset: Dataset) -> str:
    if dataset.num_versions > 1:
        return f"versions 1 to {dataset.num_versions}"
    return "version 1 alone" if dataset.num_versions else "no version yet"


def same_version(session: Session, dataset: Dataset, identity: str) -> DatasetVersion | None:
    """Return the version of the same rows, split and options, or null."""
    query = select(DatasetVersion).where(
        DatasetVersion.dataset_id == dataset.id, DatasetVersion.identity == identity
    )
    return session.scalar(query)


def newest_version(session: Session, dataset: Dataset) -> DatasetVersion | None:
    """Return the version with the highest number, or null."""
    return newest_versions(session, [dataset]).get(dataset.id)


def ancestry(session: Session, version: DatasetVersion) -> tuple[str, ...]:
    """Return the ids of a version, the earlier ones of its dataset, and all their ancestors."""
    older, ids, unread = aliased(DatasetVersion), set[str](), {version.id}
    while unread:
        query = (
            select(older.id, older.parent_id)
            .join(DatasetVersion, older.dataset_id == DatasetVersion.dataset_id)
            .where(DatasetVersion.id.in_(unread), older.number <= DatasetVersion.number)
        )
        rows = session.execute(query).all()
        ids |= {row.id for row in rows}
        unread = {row.parent_id for row in rows if row.parent_id} - ids
    return tuple(sorted(ids))


def environments(session: Session, dataset: Dataset) -> frozenset[str]:
    """Return the environments that any version of the dataset has."""
    keys = func.jsonb_object_keys(DatasetVersion.facts["envs"])
    query = select(keys).where(DatasetVersion.dataset_id == dataset.id).distinct()
    return frozenset(session.scalars(query))


def known_versions(session: Session, ids: Collection[str]) -> set[str]:
    """Return those of these ids that are versions of any project: for the sweep of blobs."""
    return set(session.scalars(select(DatasetVersion.id).where(DatasetVersion.id.in_(ids))))


def list_exclusions(
    session: Session, dataset: Dataset, *, now: datetime | None = None
) -> Sequence[DatasetExclusion]:
    """Return the exclusions by scope and key; with `now` only those in force then."""
    query = select(DatasetExclusion).where(DatasetExclusion.dataset_id == dataset.id)
    if now is not None:
        ends = DatasetExclusion.expires_at
        query = query.where(ends.is_(None) | (ends > now))
    return session.scalars(query.order_by(DatasetExclusion.scope, DatasetExclusion.key)).all()
