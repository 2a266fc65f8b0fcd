"""The sink port: what happens to an attempt's files while they grow."""

from __future__ import annotations

from typing import Protocol


class Sink(Protocol):
    """Carries the attempt's events elsewhere, in a thread of its own. Never raises, never blocks.

    Sinks read `events.jsonl`, which is written first: what they miss now they find there later.
    """

    def wake(self) -> None:
        """Say that there is something new."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Carry the rest within `timeout_s`, stop, and return whether all of it arrived."""
        ...
