"""Payloads of a run's events."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from hillclimb.protocol.payloads.base import Payload


class EventPayload(Payload):
    """One event of a run."""

    seq: int
    """Position in the run's journal, from 1."""
    id: str
    type: str
    created_at: datetime
    run_id: str
    attempt: int | None
    actor: str
    data: dict[str, Any]


class EventPage(Payload):
    """One page of a run's events, in order of `seq`."""

    object: Literal["list"] = "list"
    data: list[EventPayload]
    has_more: bool
