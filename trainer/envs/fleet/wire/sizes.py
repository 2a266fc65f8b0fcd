"""Size limits of the platform's responses and of tool results."""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.spec.environment.fleet import MAX_OUTPUT_CHARS, FleetSpec

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Size limits; see `environment.fleet`."""

    max_message_bytes: int = FleetSpec().max_message_mib * MIB
    """Limit of one HTTP body; a larger one is a fault of the platform."""
    max_output_chars: int = MAX_OUTPUT_CHARS
    """Limit of a tool result; a longer one is truncated, with a note."""


DEFAULT = Sizes()
