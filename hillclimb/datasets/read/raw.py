"""Converts one parsed JSON object, in any of Fleet's formats, into a row or a problem.

Nothing here raises, whatever the object contains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hillclimb.datasets.format.rows import (
    MODALITIES,
    FileRow,
    PromptlessRow,
    RowProblem,
    TaskRow,
    printable,
)
from hillclimb.spec.section import ENV_KEY_FORM

FIELDS: Mapping[str, tuple[str, ...]] = {
    "key": ("key", "task_key"),
    "prompt": ("prompt",),
    "env_key": ("env_key", "env_id", "environment_id"),
    "env_version": ("env_version", "version"),
    "data_key": ("data_key", "data_id"),
    "data_version": ("data_version",),
    "env_variables": ("env_variables",),
    "verifier_code": ("verifier_code", "verifier_func", "verifier"),
    "task_modality": ("task_modality",),
    "difficulty": ("difficulty",),
    "metadata": ("metadata",),
}
"""Names of each field; the first non-empty one counts."""

METADATA_FIELDS = (
    "template",
    "held_out_template",
    "tool_calls",
    "output_json_schema",
    "verifier_runtime_version",
)
"""Further fields that are stored in `metadata`."""

KNOWN = frozenset(name for names in FIELDS.values() for name in names) | set(METADATA_FIELDS)
"""All known field names; others are counted and ignored."""


_OF_PROMPTLESS = set(PromptlessRow.model_fields)
_DROP_HINT = ", or leave out rows with an empty prompt by filters.empty_prompts: drop"


class _Fault(Exception):  # never leaves this module
    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def read_row(
    value: object, number: int, *, drops_empty_prompts: bool = False
) -> FileRow | RowProblem:
    """Read the object at position `number` (from 1) of a file.

    With `drops_empty_prompts` a row with an empty prompt, but no other problem, is a PromptlessRow.
    """
    if not isinstance(value, dict):
        return RowProblem(
            row=number, message=f"is {_kind(value)}, not an object: write each task as {{…}}"
        )
    try:
        fields = _normalised(value)
        if drops_empty_prompts and not str(fields.get("prompt", "")).strip():
            row = TaskRow.model_validate({**fields, "prompt": "none"})
            return PromptlessRow.model_validate(row.model_dump(include=_OF_PROMPTLESS))
        return TaskRow.model_validate(fields)
    except _Fault as fault:
        return _problem(value, number, fault.field, str(fault))
    except ValidationError as error:
        return _problem(value, number, *_first(error))


def _normalised(value: dict[Any, Any]) -> dict[str, object]:
    """Return the non-empty fields of a row under their canonical names."""
    fields: dict[str, Any] = {}
    for field, names in FIELDS.items():
        for name in names:
            content = value.get(name)
            if content is not None and content != "":
                fields[field] = content
                break
    _tidy(fields)
    _part_version(fields)
    if "env_variables" in fields:
        variables = _object("env_variables", fields["env_variables"])
        fields["env_variables"] = {k: v for k, v in variables.items() if v is not None}
    metadata = _object("metadata", fields.get("metadata", {}))
    extra = {name: value[name] for name in METADATA_FIELDS if value.get(name) is not None}
    fields["metadata"] = {**extra, **metadata}
    return fields


def _tidy(fields: dict[str, Any]) -> None:
    """Convert values to the type of their field if they have an equivalent one."""
    for field in ("env_version", "data_version"):
        content = fields.get(field)
        if isinstance(content, int) and not isinstance(content, bool) and abs(content) < 2**63:
            fields[field] = str(content)
    verifier = fields.get("verifier_code")
    if isinstance(verifier, dict):
        fields["verifier_code"] = verifier.get("code") or None
    difficulty = fields.get("difficulty")
    if isinstance(difficulty, str) and difficulty.strip() in ("1", "2", "3"):
        fields["difficulty"] = int(difficulty)
    if isinstance(difficulty, float) and difficulty.is_integer():
        fields["difficulty"] = int(difficulty)


def _part_version(fields: dict[str, Any]) -> None:
    """Split `github:v0.0.12` into the environment and its version."""
    env_key = fields.get("env_key")
    if not isinstance(env_key, str) or ":" not in env_key:
        return
    fields["env_key"], _, version = env_key.partition(":")
    if version and fields.setdefault("env_version", version) != version:
        raise _Fault(
            "env_version",
            f"is {_short(fields['env_version'])}, but env_key says {_short(version)}: give one",
        )


def _object(field: str, content: object) -> dict[Any, Any]:
    """Return a field that is an object, or one written as JSON text."""
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except (ValueError, RecursionError):
            raise _Fault(field, "is text that is not JSON: write it as an object") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _Fault(field, f"is {_kind(content)}, not an object: write it as {{…}}")
    return content


_SENTENCES: Mapping[str, str] = {
    "string_type": "must be text, not {kind}",
    "string_unicode": "holds half of a surrogate pair: remove it",
    "string_pattern_mismatch": f"{{given}} must be {ENV_KEY_FORM}",
    "string_too_long": "is longer than {max_length} characters: shorten it",
    "string_too_short": "is empty: fill it in or leave it out",
    "literal_error": "{given} must be one of " + ", ".join(MODALITIES),
    "int_type": "{given} must be 1 (easy), 2 or 3 (hard), or be left out",
    "greater_than_equal": "{given} must be 1 (easy), 2 or 3 (hard), or be left out",
    "less_than_equal": "{given} must be 1 (easy), 2 or 3 (hard), or be left out",
    "value_error": "{error}",
}
"""Sentence for each type of pydantic error."""


def _first(error: ValidationError) -> tuple[str, str]:
    """Return the field of the first error and a sentence about it."""
    detail = error.errors(include_url=False)[0]
    field = str(detail["loc"][0]) if detail["loc"] else "metadata"
    content = detail["input"]
    if detail["type"] == "missing":
        message = f"is missing: every task needs {' or '.join(FIELDS[field])}"
        is_empty = True
    else:
        sentence = _SENTENCES.get(detail["type"], "{given} is not valid")
        values = {"given": _short(content), "kind": _kind(content), **detail.get("ctx", {})}
        message = sentence.format(**values)
        is_empty = isinstance(content, str) and not content.strip()
    return field, message + (_DROP_HINT if field == "prompt" and is_empty else "")


def _problem(value: dict[Any, Any], number: int, field: str, message: str) -> RowProblem:
    key = next((value[name] for name in FIELDS["key"] if value.get(name)), None)
    named = printable(key) if isinstance(key, str) and key else None
    return RowProblem(row=number, key=named, field=field, message=message)


def _short(value: object) -> str:
    """Return a value for a message: printable, at most 40 characters."""
    if isinstance(value, str):
        text = ascii(value[:41]) if not value.isprintable() else repr(value[:41])
    elif isinstance(value, int | float) and abs(value) < 1e15:
        text = json.dumps(value)
    else:
        return _kind(value)
    return text if len(text) <= 42 else text[:40] + "…"


def _kind(value: object) -> str:
    """Return the JSON type of a value in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"
