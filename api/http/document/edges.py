"""Documents what every operation may respond with before or beside its route.

The gate looks at the token and counts requests, the request edge limits bodies, the query is
checked for misspelt parameters, the path may name no resource, and the database may be away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from api.http.problems import (
    INVALID,
    KINDS,
    MALFORMED,
    NOT_FOUND,
    TOO_LARGE,
    TOO_SLOW,
    UNAVAILABLE,
    Kind,
    documented,
)
from api.http.requests.permissions import PERMISSIONS, SCOPE_OF, Access
from api.runs.errors import UnknownToken
from api.tables.access.errors import NotAllowed, NotAuthenticated, RateExceeded

VALIDATION_SCHEMAS = ("HTTPValidationError", "ValidationError")
"""FastAPI's own form of a 422, which `api.http.handlers` replaces."""
ROWS: Mapping[str, Access] = {row.replace(":path}", "}"): each for row, each in PERMISSIONS.items()}
"""`PERMISSIONS` by method and path as the document writes them."""


def document_edges(document: dict[str, Any]) -> None:
    """Add the responses to each operation of a document, and take FastAPI's form of a 422 away."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            access = ROWS[f"{method.upper()} {path}"]
            responses = operation["responses"]
            if _is_fastapis(responses.get("422", {})):
                del responses["422"]
            for status, response in documented(*_edges(path, operation, access)).items():
                _merge(responses.setdefault(str(status), {}), response)
    for name in VALIDATION_SCHEMAS:
        document.get("components", {}).get("schemas", {}).pop(name, None)


def _edges(path: str, operation: Mapping[str, Any], access: Access) -> Iterator[Kind]:
    parameters = operation.get("parameters", [])
    if access in SCOPE_OF:
        yield from (KINDS[error] for error in (NotAuthenticated, NotAllowed, RateExceeded))
    if access is Access.ATTEMPT:
        yield from (KINDS[error] for error in (NotAuthenticated, UnknownToken, RateExceeded))
    if parameters or path.startswith("/v1/"):
        yield INVALID
    if parameters or "requestBody" in operation:
        yield MALFORMED
    if "requestBody" in operation:
        yield from (TOO_SLOW, TOO_LARGE)
    if any(each["in"] == "path" for each in parameters):
        yield NOT_FOUND
    if access is not Access.OPEN:
        yield UNAVAILABLE


def _is_fastapis(response: Mapping[str, Any]) -> bool:
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).endswith(VALIDATION_SCHEMAS)


def _merge(known: dict[str, Any], response: Mapping[str, Any]) -> None:
    """Add the codes of a response to a known one, which may name some of them already."""
    parts = [each for each in known.get("description", "").split(" · ") if each]
    codes = {each.partition(":")[0] for each in parts}
    for part in response["description"].split(" · "):
        if part.partition(":")[0] not in codes:
            parts.append(part)
    known.update({**response, "description": " · ".join(parts)})
