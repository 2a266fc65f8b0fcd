"""A spec as the texts of the form's fields, and those texts as a spec.

A key that is left out has an empty field: the spec that a form makes names what was filled in and
nothing else. A text that does not fit its field stays text, so that the service's own sentence says
what is wrong with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import yaml

from api.http.dashboard.forms.spec_fields import SpecField, SpecGroup, spec_form, typed
from hillclimb.spec.rules.documents import load_yaml

Document = dict[str, Any]
Texts = Mapping[str, str]
NONE, USED = "null", "{}"
"""Texts of an optional section that is switched off, and of one that is used as it is."""


class TextRejected(Exception):
    """The text is no document; the message is a sentence for the user."""


class NotOnForm(Exception):
    """The document has keys that the form has no field for; the message names them."""


def read_text(text: str) -> Document:
    """Return the document of a text in YAML or JSON, as JSON has it; raises TextRejected."""
    try:
        document = load_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        why = getattr(error, "problem", None) or "it cannot be read"
        raise TextRejected(f"The text is neither YAML nor JSON{where}: {why}.") from error
    except RecursionError as error:
        raise TextRejected("The text is nested too deeply.") from error
    except ValueError as error:
        raise TextRejected(f"The text is not a spec: {error}.") from error
    if not isinstance(document, dict):
        raise TextRejected("A spec is a mapping: write keys such as `name: first-run`.")
    try:
        plain: Document = json.loads(as_json(document))
        json.dumps(plain, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise TextRejected("The text has a key or a value that JSON cannot express.") from error
    if "\\u0000" in json.dumps(plain):
        raise TextRejected("The text contains the character U+0000, which cannot be stored.")
    return plain


def write_text(document: Mapping[str, Any]) -> str:
    """Return a document as YAML."""
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=100)


def as_json(document: Mapping[str, Any]) -> bytes:
    """Return a document as the body of a request; what JSON lacks, such as a date, is text."""
    return json.dumps(document, default=str).encode()


def texts_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of all fields; raises NotOnForm for a document that they cannot hold."""
    texts: dict[str, str] = {}
    foreign: list[str] = []
    _collect(spec_form(), document, texts, foreign)
    if foreign:
        raise NotOnForm(f"The form has no field for {', '.join(foreign)}.")
    return texts


def document_of(texts: Texts) -> Document:
    """Return the spec that the fields describe."""
    return _section(spec_form(), texts)


def _collect(group: SpecGroup, document: Any, texts: dict[str, str], foreign: list[str]) -> None:  # noqa: ANN401 (any JSON)
    if not isinstance(document, Mapping):
        foreign.append(group.path)
        return
    fields = {each.key: each for each in group.fields}
    groups = {each.path.rpartition(".")[2]: each for each in group.groups}
    for key, value in document.items():
        path = f"{group.path}.{key}" if group.path else str(key)
        if path == "schema_version" and value == 1:
            continue
        if key in fields:
            texts[path] = _text(fields[key], value)
        elif key not in groups:
            foreign.append(path)
        elif value is None and groups[key].is_optional:
            texts[path] = NONE
        else:
            if groups[key].is_optional:
                texts[path] = USED
            _collect(groups[key], value, texts, foreign)


def _text(field: SpecField, value: object) -> str:
    if value is None:
        return "null" if field.is_nullable or field.scalar == "any" else ""
    if field.scalar in ("words", "numbers") and isinstance(value, list | tuple):
        is_plain = bool(value) and all(_is_plain(each) for each in value)
        return ", ".join(map(typed, value)) if is_plain else json.dumps(value, ensure_ascii=False)
    if field.scalar == "any":
        block = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
        return block.removesuffix("...\n").strip()
    return typed(value)


def _is_plain(each: object) -> bool:
    """Return True for an item that can stand between commas."""
    if isinstance(each, str):
        return each == each.strip() != "" and not set(each) & set(",[")
    return isinstance(each, int | float)


def _section(group: SpecGroup, texts: Texts) -> Document:
    made: Document = {}
    for field in group.fields:
        text = texts.get(field.path, "").strip()
        if text:
            made[field.key] = _value(field, text)
    for inner in group.groups:
        key = inner.path.rpartition(".")[2]
        chosen = texts.get(inner.path, "") if inner.is_optional else ""
        section = _section(inner, texts)
        if chosen == NONE:
            made[key] = None
        elif section or chosen == USED:
            made[key] = section
    return made


def _value(field: SpecField, text: str) -> Any:  # noqa: ANN401 (any JSON)
    """Return the value that a text stands for, or the text itself."""
    if text == "null" and field.is_nullable:
        return None
    if field.scalar in ("integer", "number", "boolean"):
        return _number(text)
    if field.scalar in ("words", "numbers") and not text.startswith("["):
        items = [each.strip() for each in text.split(",") if each.strip()]
        return items if field.scalar == "words" else [_number(each) for each in items]
    if field.scalar == "string" or (field.scalar == "reference" and not text.startswith("{")):
        return text
    return _yaml(text)


def _number(text: str) -> object:
    """Return a number or a truth value; any other text as it is."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text


def _yaml(text: str) -> Any:  # noqa: ANN401 (any YAML)
    try:
        return load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
