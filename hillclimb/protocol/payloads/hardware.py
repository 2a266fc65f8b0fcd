"""Payloads of the hardware of a plan: candidates, memory estimates and prices."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class RangePayload(Payload):
    """A range from `low` to `high`."""

    low: float
    high: float


class EstimatePayload(Payload):
    """An estimate of whether the run fits these machines."""

    fits: bool | None
    """Null: the model's shape or the GPU is not known."""
    problems: tuple[str, ...]
    lines: tuple[str, ...]
    """The arithmetic."""
    memory_gib: float | None
    disk_gib: float | None
    busy_share: float | None = None
    """Share of the GPUs' time in a training step in which they compute, on paper, from 0 to 1;
    null: not worked out."""


class CandidatePayload(Payload):
    """One of `backend.skypilot.candidates`."""

    label: str
    why_not: str | None
    """Reason for leaving it out; null: it may be rented."""
    estimate: EstimatePayload | None
    suggestions: tuple[str, ...]
    """Changes to the spec, each of which alone makes the run fit."""
    hourly_usd: RangePayload | None
    """Of all nodes together (USD); null: not known."""


class PricesPayload(Payload):
    """The age of the prices."""

    as_of: datetime | None
    """Time at which the clouds' catalogs were read; null: no price is known."""
    is_awaited: bool
    """True while prices, or newer ones, are being requested."""
    summary: str
    """A sentence on the age of the prices."""


class HardwarePayload(Payload):
    """Hardware of a plan: candidates, estimates and prices."""

    object: Literal["hardware"] = "hardware"
    candidates: tuple[CandidatePayload, ...]
    prices: PricesPayload
    hourly_usd: RangePayload | None
    """Range over the candidates that may be rented (USD); null: no price is known."""
    max_hours: float
    longest_usd: RangePayload | None
    """Price of a cluster that stays up for `max_hours` (USD)."""
