"""Datasets: a name, its immutable versions, and what is kept out of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class Dataset(Created, Base):
    """A name in a project; its versions count from 1."""

    __tablename__ = "datasets"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    num_versions: Mapped[int]
    """Number of the newest version; the row's lock gives versions their numbers without gaps."""
    created_by: Mapped[str]


class DatasetVersion(Created, Base):
    """A version: its tasks and its split are blobs, and nothing here ever changes."""

    __tablename__ = "dataset_versions"
    __table_args__ = (
        UniqueConstraint("dataset_id", "number"),
        UniqueConstraint("dataset_id", "identity"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"))
    number: Mapped[int]
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("dataset_versions.id"))
    digest: Mapped[str]
    """SHA-256 of the canonical rows and the split table: what a run is bound to."""
    identity: Mapped[str]
    """SHA-256 of the digest and the options: the same again is the same version."""
    source: Mapped[str]
    """`upload`, or the address it was fetched from."""
    num_tasks: Mapped[int]
    num_train: Mapped[int]
    num_eval: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    """Of the uncompressed rows."""
    options: Mapped[dict[str, Any]]
    """Filters and split policy as they were asked for."""
    facts: Mapped[dict[str, Any]]
    """Numbers per environment, duplicates, what was left out and why."""
    lint: Mapped[dict[str, Any]]
    created_by: Mapped[str]


class DatasetExclusion(Created, Base):
    """A task or an environment to keep out, with the reason; with an end it is a quarantine."""

    __tablename__ = "dataset_exclusions"
    __table_args__ = (UniqueConstraint("dataset_id", "scope", "key"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"))
    scope: Mapped[str]
    """`task` or `env`."""
    key: Mapped[str]
    reason: Mapped[str]
    source: Mapped[str]
    """Who found it: `user`, `validation` or `lint`."""
    expires_at: Mapped[datetime | None]
    created_by: Mapped[str]
