"""The fields of the submit form, made from the JSON Schema of a run spec.

A key with a single value is a line or a choice; a section is a group of fields. What has no fixed
keys, such as a mapping by environment or a list of sections, is written as YAML in its own field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from hillclimb.spec.run import json_schema

Json = Mapping[str, Any]
Control = Literal["line", "choice", "yaml"]
Scalar = Literal["string", "integer", "number", "boolean", "words", "numbers", "reference", "any"]
NUMBERS = ("integer", "number")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecField:
    """A key of the spec with its control."""

    path: str
    """Dotted, such as `optimizer.lr`."""
    control: Control
    scalar: Scalar
    """What the text stands for: `reference` is a name, or a section as YAML; `any` any YAML."""
    choices: tuple[str, ...] = ()
    help: str = ""
    default: str = ""
    """As it would be typed; empty: none."""
    limits: str = ""
    """The range of a number in words."""
    is_required: bool = False
    is_nullable: bool = False

    @property
    def key(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecGroup:
    """A section of the spec with its fields and its own sections."""

    path: str
    help: str
    fields: tuple[SpecField, ...]
    groups: tuple[SpecGroup, ...]
    is_optional: bool = False
    """True where null is another value than an empty section."""

    def all_fields(self) -> Iterator[SpecField]:
        """Yield the fields of the group and of all groups in it."""
        yield from self.fields
        for group in self.groups:
            yield from group.all_fields()

    def all_groups(self) -> Iterator[SpecGroup]:
        """Yield the group and all groups in it."""
        yield self
        for group in self.groups:
            yield from group.all_groups()


@lru_cache
def spec_form() -> SpecGroup:
    """Return the spec as one group, whose own fields are the keys outside of any section."""
    schema = json_schema()
    return _group("", schema, schema["$defs"], help_="", is_optional=False)


def typed(value: object) -> str:
    """Return a JSON value as it would be typed into a field."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)


def _group(path: str, schema: Json, defs: Json, *, help_: str, is_optional: bool) -> SpecGroup:
    fields: list[SpecField] = []
    groups: list[SpecGroup] = []
    required = schema.get("required", ())
    for key, node in schema["properties"].items():
        name = f"{path}.{key}" if path else key
        section, is_nullable = _section(node, defs)
        if section is not None:
            about = node.get("description") or section.get("description", "")
            groups.append(_group(name, section, defs, help_=about, is_optional=is_nullable))
        elif name != "schema_version":
            fields.append(_field(name, node, defs, is_required=key in required))
    return SpecGroup(
        path=path,
        help=_paragraph(help_),
        fields=tuple(fields),
        groups=tuple(groups),
        is_optional=is_optional,
    )


def _paragraph(docstring: str) -> str:
    """Return a docstring without its line breaks."""
    return " ".join(docstring.split())


def _section(node: Json, defs: Json) -> tuple[Json | None, bool]:
    """Return the section that a key holds, and whether it may be null; no section for others."""
    branches = node.get("anyOf", [node])
    others = [each for each in branches if each.get("type") != "null"]
    if len(others) != 1 or "$ref" not in others[0]:
        return None, False
    target = defs[others[0]["$ref"].rpartition("/")[2]]
    return (target if "properties" in target else None), len(others) < len(branches)


def _field(path: str, node: Json, defs: Json, *, is_required: bool) -> SpecField:
    branches = [_resolved(each, defs) for each in node.get("anyOf", [node])]
    others = [each for each in branches if each.get("type") != "null"]
    is_nullable = len(others) < len(branches)
    value = others[0] if len(others) == 1 else {}
    scalar, choices = _scalar(value, others)
    has_default = node.get("default") is not None
    return SpecField(
        path=path,
        control="yaml" if scalar == "any" else "choice" if choices else "line",
        scalar=scalar,
        choices=(*choices, "null") if choices and is_nullable and has_default else choices,
        help=_paragraph(node.get("description", "")),
        default=_default(node, scalar),
        limits=_limits(value) if scalar in NUMBERS else "",
        is_required=is_required,
        is_nullable=is_nullable,
    )


def _resolved(node: Json, defs: Json) -> Json:
    return defs[node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def _scalar(value: Json, branches: list[Json]) -> tuple[Scalar, tuple[str, ...]]:
    """Return what a field's text stands for, and the values to choose from."""
    if "enum" in value or "const" in value:
        return "string", tuple(typed(each) for each in value.get("enum", [value.get("const")]))
    kind = value.get("type")
    if kind == "boolean":
        return "boolean", ("true", "false")
    if kind == "array":
        items = [value["items"]] if "items" in value else value.get("prefixItems", [])
        kinds = {each.get("type") for each in items}
        if kinds == {"string"}:
            return "words", ()
        return ("numbers" if kinds <= set(NUMBERS) else "any"), ()
    if kind in ("string", *NUMBERS):
        return kind, ()
    # A name or the same thing in full, such as data.dataset.
    has_name = any(each.get("type") == "string" for each in branches)
    return ("reference" if has_name else "any"), ()


def _default(node: Json, scalar: Scalar) -> str:
    default = node.get("default")
    if default is None:
        return ""
    if scalar in ("words", "numbers"):
        return ", ".join(map(typed, default)) or "none"
    return typed(default)


def _limits(value: Json) -> str:
    bounds = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    words = [f"{word} {value[name]:,g}" for name, word in bounds.items() if name in value]
    whole = ["whole number"] if value.get("type") == "integer" else []
    return ", ".join([*whole, *words])
