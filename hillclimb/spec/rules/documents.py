"""Reads documents of YAML and JSON whose every key counts: none may be there twice."""

from __future__ import annotations

import json
from typing import Any

import yaml

MAX_VALUES = 200_000
"""Values of a document, counting what aliases repeat: a few lines of them can stand for billions.
"""


def load_yaml(text: str) -> Any:  # noqa: ANN401 (any value of YAML)
    """Return the value of one YAML document.

    Raises:
        ValueError: a sentence, if a mapping has a key twice or aliases make it too large.
        yaml.YAMLError: it is not YAML.
        RecursionError: it is nested too deeply.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _num_values(node, {}) > MAX_VALUES:
            raise ValueError(f"its aliases stand for more than {MAX_VALUES:,} values")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def repeated_key(text: bytes) -> str | None:
    """Return a key that an object of a JSON document has twice, or None.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            repeated.append(next(name for name in names if names.count(name) > 1))

    # Numbers are not read: Python refuses whole ones of thousands of digits.
    json.loads(text, object_pairs_hook=members, parse_int=str, parse_float=str)
    return repeated[0] if repeated else None


def _num_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values below a node, an alias counted as often as it stands there.

    Raises:
        ValueError: a mapping has a key twice (YAML's readers take the last one without a word).
        RecursionError: a node contains itself.
    """
    if id(node) in known:
        if known[id(node)] == 0:
            raise RecursionError("an alias stands inside of what it repeats")
        return known[id(node)]
    known[id(node)] = 0
    number = 1
    if isinstance(node, yaml.MappingNode):
        _refuse_repeated([key for key, _ in node.value])
        number += sum(_num_values(each, known) for pair in node.value for each in pair)
    elif isinstance(node, yaml.SequenceNode):
        number += sum(_num_values(each, known) for each in node.value)
    known[id(node)] = number
    return number


def _refuse_repeated(keys: list[yaml.Node]) -> None:
    names: set[str] = set()
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            if key.value in names:
                line = key.start_mark.line + 1
                raise ValueError(
                    f"line {line}: the key {key.value!r} is there twice: put both into one"
                )
            names.add(key.value)
