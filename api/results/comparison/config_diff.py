"""The difference of two resolved specs, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

UNCOMPARED = ("name", "lineage")
"""Top-level keys that name a run and do not change what it does."""
MISSING = object()


def config_diff(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the keys whose values differ, by JSON pointer; a key that one side lacks is null."""
    kept_first, kept_second = (
        {key: value for key, value in spec.items() if key not in UNCOMPARED}
        for spec in (first, second)
    )
    return [
        {
            "pointer": pointer,
            "a": None if left is MISSING else left,
            "b": None if right is MISSING else right,
        }
        for pointer, left, right in _differences("", kept_first, kept_second)
    ]


def _differences(pointer: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any JSON
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            escaped = str(key).replace("~", "~0").replace("/", "~1")
            yield from _differences(
                f"{pointer}/{escaped}", left.get(key, MISSING), right.get(key, MISSING)
            )
    elif left is MISSING or right is MISSING or left != right:
        yield pointer, left, right
