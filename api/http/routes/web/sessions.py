"""Signs browsers in, by a form or by a one-time code that the owner of a key created."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.sessions import (
    CODE_S,
    COOKIE,
    SESSION_S,
    mint_code,
    open_session,
    read_session,
    redeem_code,
)
from api.http.dashboard.templating import render_page
from api.http.problems import KINDS, documented
from api.http.requests.context import RawBody, Services, ServicesDep, principal_with
from api.runs.journal import utc_now
from api.tables.access.identity import NotAuthenticated, Principal, Scope, authenticate
from api.tables.access.members import end_sessions
from hillclimb.protocol.payloads.projects.service import SessionCodePayload

router = APIRouter(tags=["browser"])

KeyHolder = Annotated[Principal, Depends(principal_with(Scope.RUNS_READ))]


@router.post(
    "/v1/session-codes",
    operation_id="create_session_code",
    summary="Create a one-time sign-in link",
    status_code=201,
    responses={**documented(KINDS[NotAuthenticated])},
)
def create_session_code(services: ServicesDep, caller: KeyHolder) -> SessionCodePayload:
    """Return a code for `GET /login?code=…&next=/runs/…`; it works once, within `expires_in_s`."""
    with services.database.transaction() as session:
        code = mint_code(session, caller, now=utc_now())
    return SessionCodePayload(
        code=code,
        login_url=f"{services.settings.link_base}/login?code={code}",
        expires_in_s=CODE_S,
    )


@router.get("/login", include_in_schema=False)
def login_page(
    request: Request,
    services: ServicesDep,
    code: Annotated[str | None, Query(max_length=100)] = None,
    next: Annotated[str, Query(max_length=300)] = "/",
) -> Response:
    """Show the form, or redeem a code and redirect."""
    if code is None:
        return form(next, has_provider=services.provider is not None)
    try:
        with services.database.transaction() as session:
            principal = redeem_code(session, code, now=utc_now())
    except NotAuthenticated as error:
        return form(next, problem=str(error), has_provider=services.provider is not None)
    return _enter(request, services, principal, next)


@router.post("/login", include_in_schema=False)
def login(request: Request, services: ServicesDep, body: RawBody) -> Response:
    """Exchange the form's API key for a session."""
    fields = parse_qs(body.decode(errors="replace"))
    key, target = fields.get("key", [""])[0].strip(), fields.get("next", ["/"])[0]
    try:
        with services.database.transaction() as session:
            principal = authenticate(session, key, now=utc_now())
        principal.require(Scope.RUNS_READ)
    except NotAuthenticated as error:
        return form(target, problem=str(error), has_provider=services.provider is not None)
    return _enter(request, services, principal, target)


@router.post("/logout", include_in_schema=False)
def logout(request: Request, services: ServicesDep) -> Response:
    """End the session of this browser, and every session of a person."""
    cookie = request.cookies.get(COOKIE)
    now = utc_now()
    with suppress(NotAuthenticated), services.database.transaction() as session:
        caller = read_session(session, cookie or "", secret=services.cursor_secret, now=now)
        if caller.key_id is None and caller.person_id is not None:
            end_sessions(session, caller.person_id, now=now)
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(COOKIE)
    return response


def form(target: str, *, problem: str | None = None, has_provider: bool = False) -> Response:
    """Return the sign-in form, with the problem of the last try."""
    page = render_page(
        "login",
        signed_in=False,
        next=local(target),
        problem=problem,
        has_provider=has_provider,
    )
    return HTMLResponse(page, status_code=401 if problem else 200, headers=PAGE_HEADERS)


def _enter(request: Request, services: Services, principal: Principal, target: str) -> Response:
    response = RedirectResponse(local(target), status_code=303, headers=PAGE_HEADERS)
    set_session(response, request, services, principal)
    return response


def set_session(
    response: Response, request: Request, services: Services, principal: Principal
) -> None:
    """Set the cookie of a new session."""
    response.set_cookie(
        COOKIE,
        open_session(principal, secret=services.cursor_secret, now=utc_now()),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=is_secure(request, services),
    )


def is_secure(request: Request, services: Services) -> bool:
    """Return True where browsers reach the service by https, a proxy in front of it included."""
    return request.url.scheme == "https" or services.settings.link_base.startswith("https://")


def local(target: str) -> str:
    """Return the target if it is a path of this site, else `/`."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_path and target.isprintable() and "\\" not in target else "/"
