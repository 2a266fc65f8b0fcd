"""Payloads of lint findings."""

from __future__ import annotations

from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class FindingPayload(Payload):
    """One finding of lint in one environment, or in the version as a whole."""

    code: str
    severity: Literal["error", "warning", "info"]
    env_key: str | None
    """Null if it is about the version as a whole."""
    count: int
    """Number of tasks, groups of tasks or rows."""
    message: str
    examples: list[str]
    """At most five: keys, or keys with the words at fault."""
    remedy: str


class FindingList(Payload):
    """The findings of a version, errors first."""

    object: Literal["list"] = "list"
    data: list[FindingPayload]
    has_more: bool
    name: str
    """Name of the dataset."""
    number: int
    """Number of the version."""
