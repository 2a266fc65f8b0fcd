"""Headers of problems, the `components/headers` of the document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

WAITING = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses whose responses say when to try again."""
HEADERS: Mapping[str, dict[str, Any]] = {
    "X-Request-ID": {
        "description": "Id of the request, also in the log.",
        "required": True,
        "schema": {"type": "string"},
    },
    "X-Should-Retry": {
        "description": "Whether the same request may succeed later.",
        "required": True,
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "WWW-Authenticate": {
        "description": "How to send a key.",
        "required": True,
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Seconds to wait before the next try.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
}


def headers_at(status: HTTPStatus) -> Iterator[str]:
    """Yield the names of the headers of a problem with that status."""
    yield from ("X-Request-ID", "X-Should-Retry")
    if status is HTTPStatus.UNAUTHORIZED:
        yield "WWW-Authenticate"
    if status in WAITING:
        yield "Retry-After"
