"""The sink port: consumers of an attempt's growing event file."""

from __future__ import annotations

from typing import Protocol


class Sink(Protocol):
    """Carries the attempt's events elsewhere, in a thread of its own. Never raises, never blocks.

    Sinks read `events.jsonl`, which is written first, so a sink can always catch up later.
    """

    def wake(self) -> None:
        """Signal that there are new events."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Send the remaining events within `timeout_s` and stop; True if all arrived."""
        ...
