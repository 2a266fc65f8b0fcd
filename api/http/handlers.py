"""Error handlers: every error becomes problem+json, but for a browser at an unknown address."""

from __future__ import annotations

import difflib
import logging
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.datasets.errors import DatasetRejected
from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.templating import render_page
from api.http.problems import (
    BY_STATUS,
    CONTENT_TYPE,
    DOMAIN_ERRORS,
    INTERNAL,
    INVALID,
    MALFORMED,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    UNAVAILABLE,
    Kind,
    Problem,
    body_of,
    headers_of,
    kind_of,
)
from api.runs.errors import ForkRejected, RunInUse, SpecOutdated
from api.tables.access.errors import LimitReached, ProjectInUse
from api.tables.database import is_absence, why_unstorable
from hillclimb.blobs.base import StoreError
from hillclimb.protocol.spec_problems import SpecProblem, sentence_of

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Request, Exception], Response]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
DETAILS = {
    404: "No resource has this path.",
    405: "This path exists, but not with this method.",
}


def install(app: FastAPI) -> None:
    """Make every error of the application a problem+json response, or the page of no address."""
    handlers: dict[type[Exception], Handler] = {
        Problem: _problem,
        RequestValidationError: _invalid,
        HTTPException: _http,
        DataError: _unstorable,
        OperationalError: _unavailable,
        PoolTimeout: _unavailable,
        StoreError: _store_unavailable,
        **dict.fromkeys(DOMAIN_ERRORS, _domain),
    }
    for error, handler in handlers.items():
        app.add_exception_handler(error, _without_thread(handler))


def _without_thread(handler: Handler) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return the handler as a coroutine: a plain function waits for a free thread."""

    async def handle(request: Request, error: Exception) -> Response:
        return handler(request, error)

    return handle


def answer(request: Request, error: Exception) -> Response:
    """Return the response to an error that was raised before any route."""
    is_outage = isinstance(error, OperationalError | PoolTimeout)
    return _unavailable(request, error) if is_outage else _domain(request, error)


def respond(
    request: Request, kind: Kind, detail: str, errors: Sequence[SpecProblem] = ()
) -> Response:
    """Return a problem+json response."""
    request_id: str = request.state.request_id
    body = body_of(kind, detail, path=request.url.path, request_id=request_id, errors=errors)
    return JSONResponse(
        body, status_code=kind.status.value, headers=headers_of(kind), media_type=CONTENT_TYPE
    )


def not_allowed(request: Request, methods: Sequence[str]) -> Response:
    """Return the response to a method that a path does not have."""
    response = respond(request, METHOD_NOT_ALLOWED, DETAILS[METHOD_NOT_ALLOWED.status])
    response.headers["Allow"] = ", ".join(sorted(methods, key=METHODS.index))
    return response


def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return respond(request, error.kind, error.detail, error.errors)


def _domain(request: Request, error: Exception) -> Response:
    kind = kind_of(error)
    if kind is INTERNAL:
        log.error("%s has no row in api.http.problems", type(error).__name__, exc_info=error)
    with_problems = (DatasetRejected, ForkRejected, ProjectInUse, RunInUse, SpecOutdated)
    errors = error.problems if isinstance(error, with_problems) else ()
    response = respond(request, kind, str(error), errors)
    if isinstance(error, LimitReached):
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return response


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == METHOD_NOT_ALLOWED.status:
        return not_allowed(request, _methods(request))
    if error.status_code == NOT_FOUND.status and _is_of_a_browser(request):
        return _no_page()
    kind = BY_STATUS.get(error.status_code, INTERNAL)
    response = respond(request, kind, DETAILS.get(error.status_code, error.detail))
    response.headers.update(error.headers or {})
    return response


def _is_of_a_browser(request: Request) -> bool:
    """Tell whether somebody typed the address of a page or followed a link to it."""
    is_page = request.method == "GET" and not request.url.path.startswith("/v1/")
    return is_page and "text/html" in request.headers.get("accept", "")


def _no_page() -> Response:
    detail = "No page has this address."
    page = render_page("problem", signed_in=False, title="No such page", detail=detail)
    return HTMLResponse(page, status_code=NOT_FOUND.status, headers=PAGE_HEADERS)


def _methods(request: Request) -> list[str]:
    """Return all methods of the path; the router itself names those of one route."""
    return [
        method
        for method in METHODS
        for route in request.app.routes
        if route.matches({**request.scope, "method": method})[0] is Match.FULL
    ]


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    details = error.errors()
    if details and details[0]["type"] == "json_invalid":
        return respond(request, MALFORMED, _json_mistake(details[0]))
    # A value that fits no branch of a union has an error per branch.
    errors = list(
        {error.pointer: error for error in reversed(list(map(_explain, details)))}.values()
    )
    errors.reverse()
    return respond(request, INVALID, "; ".join(e.message for e in errors), errors)


def _json_mistake(detail: dict[str, Any]) -> str:
    position = detail["loc"][-1]
    return f"The body is not JSON: {detail['ctx']['error']} at character {position}."


def _explain(detail: dict[str, Any]) -> SpecProblem:
    place, *path = detail["loc"]
    if place != "body":
        # What follows the name are pydantic's own words for the branches of a union.
        path = [*path[:1], *(part for part in path[1:] if isinstance(part, int))]
    pointer = "".join(f"/{part}" for part in path)
    message = _unknown_choice(detail) if place == "query" else None
    if message is None:
        where = f"{place} {'.'.join(str(part) for part in path)}".strip()
        message = f"{where}: {sentence_of(detail)}{_nearest(detail)}"
    return SpecProblem(pointer=pointer, code=str(detail["type"]), message=message)


def _unknown_choice(detail: dict[str, Any]) -> str | None:
    """Return the sentence for a query's word that is none of the possible ones; null for others."""
    known = _choices(detail)
    if not known:
        return None
    nearest = _nearest(detail)
    there_are = f"{'. There' if not nearest else ' There'} are {', '.join(known)}"
    return f"unknown {detail['loc'][1]} {str(detail.get('input'))!r:.60}{nearest}{there_are}"


def _nearest(detail: dict[str, Any]) -> str:
    """Return which possible word is nearest to a misspelt one, as the end of a sentence."""
    known, word = _choices(detail), str(detail.get("input"))
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _choices(detail: dict[str, Any]) -> list[str]:
    """Return the possible values of what must be one of a few words."""
    if detail["type"] not in ("enum", "literal_error"):
        return []
    return re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))


def _unstorable(request: Request, _error: Exception) -> Response:
    return respond(request, MALFORMED, "The request has a value that cannot be stored or compared.")


def _store_unavailable(request: Request, error: Exception) -> Response:
    log.warning("request %s: the blob store is unavailable: %s", request.state.request_id, error)
    return respond(request, UNAVAILABLE, "The blob store does not respond; try again soon.")


def _unavailable(request: Request, error: Exception) -> Response:
    if why_unstorable(error) is not None:
        return _unstorable(request, error)
    if isinstance(error, OperationalError) and not is_absence(error):
        log.error("request %s failed", request.state.request_id, exc_info=error)
        return respond(request, INTERNAL, "Internal error; it has been logged.")
    log.warning("request %s: the database is unavailable: %s", request.state.request_id, error)
    return respond(request, UNAVAILABLE, "The database does not respond; try again soon.")
