"""What a cloud asks for a gang of machines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One way to have the gang of a candidate, by a catalog: it may be gone when asked for."""

    candidate: int
    """Which candidate of the spec this is a way for, from 0."""
    infra: str
    """With its region: `aws/us-east-1`."""
    sku: str | None
    """The cloud's own name of the machine: `p5.48xlarge`."""
    hourly_usd: float
    """Of all nodes together (USD)."""
