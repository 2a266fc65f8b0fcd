"""Payloads of datasets and their versions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, WithJsonSchema

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.datasets.lint import FindingPayload

OffsetTime = Annotated[
    datetime,
    PlainSerializer(datetime.isoformat, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
"""A time whose JSON ends in `+00:00`, not in `Z`."""


class EnvCountsPayload(Payload):
    """The tasks of one environment in one version (counts)."""

    train: int
    eval: int
    excluded: int
    total: int
    unique_eval: int
    """Eval tasks that ask different things."""
    with_env_variables: int
    with_current_date: int
    with_verifier: int
    difficulties: dict[str, int]
    """Tasks by difficulty ("1" to "3"), and those without one under "none"."""
    modalities: dict[str, int]
    by_modality: dict[str, dict[str, int]] = Field(default_factory=dict)
    """`train`, `eval` and `unique_eval` of the tasks of each modality; empty in old versions."""
    with_minifleet_key: int
    """Tasks whose key has minifleet's form."""


class VersionSummary(Payload):
    """A version in a list."""

    object: Literal["dataset_version"] = "dataset_version"
    name: str
    """Name of the dataset."""
    id: str
    number: int
    parent_id: str | None
    digest: str
    """SHA-256 of the tasks and the split; runs are bound to it."""
    source: str
    """`upload`, or the address of the source."""
    num_tasks: int
    num_train: int
    num_eval: int
    size_bytes: int
    created_by: str
    created_at: OffsetTime
    num_envs: int
    num_lint_errors: int
    num_lint_warnings: int
    note: str | None = None
    """Free text of its people; everything else of a version stays as it was created."""


class VersionList(Payload):
    """One page of versions, newest first."""

    object: Literal["list"] = "list"
    data: list[VersionSummary]
    has_more: bool


class DuplicatePayload(Payload):
    """Rows of a file with the key of an earlier row, which was selected."""

    key: str
    env_key: str
    count: int
    differing: int


class CopiesPayload(Payload):
    """Tasks with the same content under different keys."""

    env_key: str
    keys: list[str]


class VersionPayload(VersionSummary):
    """A version in full."""

    options: dict[str, Any]
    """Filters, split policy and lint options, as requested."""
    content_hash: str
    """SHA-256 of the tasks."""
    split_hash: str
    """SHA-256 of the split table."""
    num_excluded: int
    num_read: int
    """Rows of the file without a problem."""
    envs: dict[str, EnvCountsPayload]
    dropped: dict[str, int]
    """Rows that each filter left out, by its name."""
    empty_prompts: list[str] = Field(default_factory=list)
    """Keys of rows that were left out because their prompt is empty (at most 1,000)."""
    excluded: dict[str, int]
    """Excluded tasks by reason."""
    num_duplicates: int
    duplicates: list[DuplicatePayload]
    num_copies: int
    copies: list[CopiesPayload]
    ignored_fields: dict[str, int]
    """Unknown fields of the file, which are not stored."""
    lint: list[FindingPayload]


class DatasetPayload(Payload):
    """A dataset with its newest version."""

    object: Literal["dataset"] = "dataset"
    id: str
    name: str
    num_versions: int
    created_by: str
    created_at: OffsetTime
    newest: VersionSummary | None


class DatasetList(Payload):
    """One page of datasets, newest first."""

    object: Literal["list"] = "list"
    data: list[DatasetPayload]
    has_more: bool
    next_cursor: str | None


class PlannedDataset(Payload):
    """The dataset version of a plan, with its tasks per environment."""

    name: str
    version: int
    id: str
    envs: dict[str, EnvCountsPayload]
