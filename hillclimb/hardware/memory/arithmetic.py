"""Terms and sums of memory, with their arithmetic as lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Term:
    """One use of memory or disk."""

    what: str
    num_bytes: float
    how: str
    """The arithmetic: `16 B x 8.191e9 parameters / 4 ranks`."""

    @property
    def line(self) -> str:
        """Line of text for users."""
        return f"{gib(self.num_bytes)} {self.what}: {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of the run with everything that is in memory at once."""

    name: str
    terms: tuple[Term, ...]

    @property
    def num_bytes(self) -> float:
        """Sum of the terms (bytes)."""
        return sum(term.num_bytes for term in self.terms)


def largest(phases: Iterable[Phase]) -> Phase:
    """Return the phase with the largest memory."""
    return max(phases, key=lambda phase: phase.num_bytes)


def gib(num_bytes: float) -> str:
    """Format bytes as `12.3 GiB`; small positive sizes as `0.1 GiB`."""
    value = num_bytes / GIB
    return f"{max(value, 0.1) if value > 0 else 0.0:.1f} GiB"


def count(number: float) -> str:
    """Format a count as `8.191e9`, or plainly if it is small."""
    if number < 100_000:
        return f"{number:g}"
    exponent = 9 if number >= 1e9 else 6 if number >= 1e6 else 3
    return f"{number / 10**exponent:.4g}e{exponent}"
