"""Offers of clouds: machines with their prices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A catalog's offer of a candidate's machines, which may be unavailable when requested."""

    candidate: int
    """Index of the candidate in the spec, from 0."""
    infra: str
    """Cloud and region: `aws/us-east-1`."""
    sku: str | None
    """The cloud's name of the machine: `p5.48xlarge`."""
    hourly_usd: float
    """Hourly price of all nodes together (USD)."""
