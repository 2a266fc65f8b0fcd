"""Payloads of the differences between two versions."""

from __future__ import annotations

from hillclimb.protocol.payloads.base import Payload


class DiffTask(Payload):
    """A task of one of two versions."""

    key: str
    env_key: str
    split: str


class DiffChange(Payload):
    """A task whose content changed."""

    key: str
    env_key: str
    fields: list[str]
    """Fields that differ, in order of name."""


class DiffMove(Payload):
    """A task whose split changed."""

    key: str
    env_key: str
    before: str
    after: str
    reason: str | None
    """Reason of an exclusion; null for the others."""


class DiffCounts(Payload):
    """Numbers of tasks by kind of difference."""

    added: int
    removed: int
    changed: int
    moved: int


class EnvDiffPayload(DiffCounts):
    """The differences in one environment."""

    env_key: str


class DiffPayload(Payload):
    """The differences between two versions; each list is sorted by key."""

    before: str
    """`NAME@N`."""
    after: str
    added: list[DiffTask]
    removed: list[DiffTask]
    changed: list[DiffChange]
    moved: list[DiffMove]
    by_env: list[EnvDiffPayload]
    """Environments with a difference, in order of name."""
    unchanged: int
    counts: DiffCounts
    is_cut: bool
    """True if a list is shorter than its count."""
