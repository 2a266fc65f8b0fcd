"""Datasets, their immutable versions and their exclusions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class Dataset(Created, Base):
    """A dataset of a project; its versions count from 1."""

    __tablename__ = "datasets"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    num_versions: Mapped[int]
    """Number of the newest version; the row's lock gives versions their numbers without gaps."""
    created_by: Mapped[str]


class DatasetVersion(Created, Base):
    """An immutable version of a dataset; its tasks and its split are blobs."""

    __tablename__ = "dataset_versions"
    __table_args__ = (
        UniqueConstraint("dataset_id", "number"),
        UniqueConstraint("dataset_id", "identity"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"))
    number: Mapped[int]
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("dataset_versions.id"), index=True)
    digest: Mapped[str]
    """SHA-256 of the canonical rows and the split table; a run's spec contains it."""
    identity: Mapped[str]
    """SHA-256 of the digest and the options: equal input is the same version."""
    source: Mapped[str]
    """`upload`, or the address of the source."""
    num_tasks: Mapped[int]
    num_train: Mapped[int]
    num_eval: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    """Size of the uncompressed rows."""
    options: Mapped[dict[str, Any]]
    """Filters and split policy as requested."""
    facts: Mapped[dict[str, Any]]
    """Numbers per environment, duplicates, and excluded tasks with reasons."""
    lint: Mapped[dict[str, Any]]
    created_by: Mapped[str]
    note: Mapped[str | None]
    """Free text of its people; the only thing of a version that changes."""


class DatasetExclusion(Created, Base):
    """An excluded task or environment, with the reason; a quarantine if it expires."""

    __tablename__ = "dataset_exclusions"
    __table_args__ = (UniqueConstraint("dataset_id", "scope", "key"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"))
    scope: Mapped[str]
    """`task` or `env`."""
    key: Mapped[str]
    reason: Mapped[str]
    source: Mapped[str]
    """Its origin: `user`, `validation` or `lint`."""
    expires_at: Mapped[datetime | None]
    created_by: Mapped[str]
