"""The difference of two resolved specs, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

UNCOMPARED = ("name", "tags", "lineage")
"""Top-level keys that name a run and do not change what it does."""
IMPORTED_MODEL = "imported:"
"""Beginning of `model.source` in the spec of a run that was imported without one."""
KNOWN = ("kind", "model", "data", "eval")
"""Top-level keys that say something about such a run; the others have the schema's defaults."""
MISSING = object()


def config_diff(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the keys whose values differ, by JSON pointer; a key that one side lacks is null.

    Where a run was imported without its spec, only the keys that the import knows are compared.
    """
    is_known = not any(_is_imported(spec) for spec in (first, second))
    left_values, right_values = (
        {
            key: value
            for key, value in spec.items()
            if key not in UNCOMPARED and (is_known or key in KNOWN)
        }
        for spec in (first, second)
    )
    return [
        {
            "pointer": pointer,
            "a": None if left is MISSING else left,
            "b": None if right is MISSING else right,
        }
        for pointer, left, right in _differences("", left_values, right_values)
    ]


def _is_imported(spec: Mapping[str, Any]) -> bool:
    return str((spec.get("model") or {}).get("source", "")).startswith(IMPORTED_MODEL)


def _differences(pointer: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401 - any JSON
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for key in sorted({*left, *right}):
            escaped = str(key).replace("~", "~0").replace("/", "~1")
            yield from _differences(
                f"{pointer}/{escaped}", left.get(key, MISSING), right.get(key, MISSING)
            )
    elif left is MISSING or right is MISSING or left != right:
        yield pointer, left, right
