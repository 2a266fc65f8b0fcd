"""Payloads of logs."""

from __future__ import annotations

from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class LogPayload(Payload):
    """Part of an attempt's log."""

    object: Literal["log"] = "log"
    run_id: str
    attempt: int
    text: str
    next_offset: int
    """Position behind the text, for the next request."""
    has_more: bool
    """True if more is there already."""
    ended: bool
    """True if the attempt has ended and nothing more will come."""
