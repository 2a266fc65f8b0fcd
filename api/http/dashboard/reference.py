"""Contents of the page `/docs`: the operations of the OpenAPI document, by tag."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from api.http.dashboard.templating import render_page

METHODS = ("get", "post", "put", "patch", "delete")


@lru_cache(maxsize=1)
def reference_page(document: str) -> str:
    """Return the page of an OpenAPI document, which comes as JSON text."""
    parsed = json.loads(document)
    tags: dict[str, list[dict[str, Any]]] = {}
    for path, methods in parsed["paths"].items():
        for method in METHODS:
            if method in methods:
                operation = _operation(path, method, methods[method])
                tags.setdefault(operation["tag"], []).append(operation)
    schemas = parsed.get("components", {}).get("schemas", {})
    return render_page(
        "docs",
        signed_in=False,
        version=parsed["info"]["version"],
        tags=sorted(tags.items()),
        names=set(schemas),
        num=sum(len(each) for each in tags.values()),
        schemas=[
            (name, json.dumps(schema, indent=2, ensure_ascii=False))
            for name, schema in sorted(schemas.items())
        ],
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {})
    return {
        "id": operation["operationId"],
        "tag": (operation.get("tags") or ["other"])[0],
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "parameters": [
            {
                "name": each["name"],
                "place": each["in"],
                "required": each.get("required", False),
                "type": _type(each.get("schema", {})),
                "description": each.get("description", ""),
            }
            for each in operation.get("parameters", [])
        ],
        "bodies": [(kind, _type(content.get("schema", {}))) for kind, content in body.items()],
        "responses": [
            {
                "status": status,
                "description": response.get("description", ""),
                "types": [
                    _type(content.get("schema", {}))
                    for content in response.get("content", {}).values()
                ],
            }
            for status, response in operation.get("responses", {}).items()
        ],
    }


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema in a word or two: the name of a component, or its type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"])
    return str(schema.get("type", "any"))
