"""Payloads of the exclusions of a dataset."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class ExclusionPayload(Payload):
    """An excluded task or environment, with the reason."""

    object: Literal["exclusion"] = "exclusion"
    id: str
    scope: Literal["task", "env"]
    key: str
    reason: str
    source: str
    """Origin: `user`, `validation` or `lint`."""
    expires_at: datetime | None
    """End of a temporary exclusion; null: permanent."""
    in_force: bool
    created_by: str
    created_at: datetime


class ExclusionList(Payload):
    """Exclusions of a dataset, by scope and key."""

    object: Literal["list"] = "list"
    data: list[ExclusionPayload]
    has_more: bool


class RemovedExclusion(Payload):
    """An exclusion that was removed."""

    object: Literal["exclusion"] = "exclusion"
    id: str
    removed: bool
