"""The base class of models whose fields are described by the docstrings below them.

pydantic's `use_attribute_docstrings` reads every class's source when the class is made: 28 % of the
CPU time that `hillclimb` took to start. Here the source is read when a JSON schema is made.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler


class Documented(BaseModel):
    """A model whose JSON schema has the docstrings of its fields as descriptions."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        core_schema: Any,  # noqa: ANN401 (a dictionary of pydantic's own package)
        handler: GetJsonSchemaHandler,
        /,
    ) -> dict[str, Any]:
        """Return pydantic's schema with a description for each field that has a docstring."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        _close(properties)
        for name, text in field_docstrings(cls).items():
            field = cls.model_fields[name]
            if (field_schema := properties.get(field.alias or name)) is not None:
                field_schema.setdefault("description", text)
        return schema


def _close(schema: object) -> None:
    """Forbid the keys of a mapping that fit no pattern: pydantic refuses them and leaves it out."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema.setdefault("additionalProperties", False)
        for each in schema.values():
            _close(each)
    elif isinstance(schema, list):
        for each in schema:
            _close(each)


@cache
def field_docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstring of each field that has one, inherited fields included."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts |= _docstrings_of(base.__module__).get(base.__qualname__, {})
    return {name: text for name, text in texts.items() if name in model.model_fields}


@cache
def _docstrings_of(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of the annotated names of each top-level class of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: dict(_read(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _read(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                yield name, inspect.cleandoc(docstring)
