"""Limits of imported metrics: names that an index can hold, and numbers."""

from __future__ import annotations

MAX_METRICS = 5_000
"""Metrics of one step."""
MAX_NAME_CHARS = 300
LARGEST = 1e300
"""Largest absolute value of a metric."""


def is_metrics(value: object) -> bool:
    """Tell whether JSON is an object of printable names and numbers; NaN is one, infinity not."""
    return (
        isinstance(value, dict)
        and len(value) <= MAX_METRICS
        and all(is_name(name) for name in value)
        and all(_is_number(each) for each in value.values())
    )


def is_name(name: object) -> bool:
    """Tell whether it is printable text that an index can hold."""
    return isinstance(name, str) and len(name) <= MAX_NAME_CHARS and name.isprintable()


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST or value != value
