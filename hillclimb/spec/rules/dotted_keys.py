"""Dotted keys of a spec: `optimizer.lr`, and `environment.overrides."forum.v2".max_turns`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def key_parts(dotted: str) -> list[str]:
    """Return the parts of a dotted key; within double quotes a dot parts nothing.

    Raises:
        ValueError: a quote is open, stands inside a part, or there is no part.
    """
    parts = re.findall(r'(?:^|\.)("[^"]+"|[^."]*)', dotted)
    if not dotted or ".".join(parts) != dotted:
        raise ValueError('put quotes around a whole part, as in a."b.c".d')
    return [part.strip('"') for part in parts]


def set_key(spec: dict[str, Any], dotted: str, value: Any) -> None:  # noqa: ANN401 - any JSON
    """Set one key of the spec, in place; omitted sections and nulls on its way become sections.

    Raises:
        ValueError: the key is malformed, or a parent of it is not a section.
    """
    *parents, last = key_parts(dotted)
    target = spec
    for part in parents:
        if target.get(part) is None:  # an omitted section, or a null of a plan
            target[part] = {}
        target = target[part]
        if not isinstance(target, dict):
            raise ValueError(f"{part} is not a section")  # noqa: TRY004 - a value of the user's
    target[last] = value


def get_key(spec: Mapping[str, Any], dotted: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value of a key of a resolved spec; None where a section on its way is missing."""
    target: Any = spec
    for part in key_parts(dotted):
        if not isinstance(target, Mapping):
            return None
        target = target.get(part)
    return target
