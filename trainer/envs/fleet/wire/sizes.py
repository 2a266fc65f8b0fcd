"""How much of what a platform answers is taken, and how much of that the model sees."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.contract.fleet import FleetSpec

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bounds of answers; see `environment.fleet`."""

    max_message_bytes: int = FleetSpec().max_message_mib * MIB
    """Of one HTTP body; a larger one is a fault of the platform."""
    max_output_chars: int = FleetSpec().max_output_chars
    """Of one tool's answer; what is longer is cut, and says so."""


DEFAULT = Sizes()
