"""Identifiers in arguments, and texts that the policy has seen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from tests.hillclimb.stats.trajectories.labelled.agent.ambiguity import refuse

_NAME = re.compile(r"(?:^|_)ids?$|[a-z]Ids?$|_(?:key|ref|code|number|uuid)$")
"""`issue_id`, `issueIds`, `id`, `booking_ref`; not `paid`, `grid`."""


def identifiers(arguments: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield the values that name a thing, at any depth."""
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            yield from identifiers(value)
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for item in value:
                yield from identifiers(item if isinstance(item, Mapping) else {})
        elif _NAME.search(name):
            values: Sequence[JsonValue] = value if isinstance(value, list) else [value]
            yield from (str(item) for item in values if isinstance(item, str | int))


def is_seen(value: str, texts: Sequence[str]) -> bool:
    """Tell whether one of the texts has the value as a whole word, in whatever case.

    Raises:
        Ambiguous: two readers would think differently.
    """
    text = "\n".join(texts).casefold()
    word = re.escape(value.casefold())
    is_strict = re.search(rf"(?<![\w.@/-]){word}(?![\w@/-]|\.\w)", text) is not None
    is_loose = re.search(rf"(?<![^\W_]){word}(?![^\W_])", text) is not None
    refuse(is_strict != is_loose, f"{value} may or may not have been seen")
    return is_strict
