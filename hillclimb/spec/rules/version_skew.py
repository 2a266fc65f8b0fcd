"""Version skew: keys of a spec that a reader of another version does not know.

During an update an old runner reads specs of a new service. A key that a version adds has a default
that means what the versions before did: it is left out where it stands at that default. What a
person is told of an unknown key is worded in `hillclimb.protocol.spec_problems`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

KeyPath = tuple[str | int, ...]


def keys_at_default(spec: BaseModel) -> tuple[KeyPath, ...]:
    """Return the paths of all keys of a spec whose value is the default of this version."""
    return tuple(_at_default(spec, ()))


def _at_default(value: object, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            inner = getattr(value, name)
            is_default = not field.is_required() and inner == field.get_default(
                call_default_factory=True
            )
            if is_default:
                yield (*path, name)
            yield from _at_default(inner, (*path, name))
    elif isinstance(value, tuple | list):
        for index, inner in enumerate(value):
            yield from _at_default(inner, (*path, index))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _at_default(inner, (*path, key))


def without_unknown_defaults(
    spec: dict[str, Any], at_default: object, *, model: type[BaseModel]
) -> dict[str, Any]:
    """Return a spec's JSON without keys that this version does not know and that change nothing.

    `model` parses specs; `at_default` are the sender's `keys_at_default`, as JSON. Every other
    unknown key stays, for which the spec is refused.
    """
    paths = at_default if isinstance(at_default, list | tuple) else ()
    try:
        model.model_validate(spec)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    else:
        return spec
    unknown = {_path_in(spec, d["loc"]) for d in details if d["type"] == "extra_forbidden"}
    for path in unknown & {tuple(path) for path in paths if isinstance(path, list | tuple)}:
        spec = _without(spec, path)
    return spec


def _path_in(spec: Any, loc: KeyPath) -> KeyPath:  # noqa: ANN401 (any JSON)
    """Return an error's place without the names of union members, which are no keys."""
    path: list[str | int] = []
    for part in loc:
        is_key = isinstance(spec, dict) and part in spec
        if is_key or (isinstance(spec, list) and isinstance(part, int) and part < len(spec)):
            path.append(part)
            spec = spec[part]
    return tuple(path)


def _without(value: Any, path: KeyPath) -> Any:  # noqa: ANN401 (any JSON)
    """Return a copy of JSON without the key at the path."""
    first, *rest = path
    if not rest:
        return {key: inner for key, inner in value.items() if key != first}
    copy: Any = list(value) if isinstance(value, list) else dict(value)
    copy[first] = _without(copy[first], tuple(rest))
    return copy
