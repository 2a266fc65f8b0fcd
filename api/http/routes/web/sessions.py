"""Signs browsers in, by a form or by a one-time code that the owner of a key created."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.sessions import (
    CODE_S,
    COOKIE,
    SESSION_S,
    USED,
    check_form_token,
    form_token,
    is_minted,
    mint_code,
    open_session,
    principal_of_code,
    read_session,
    redeem_code,
)
from api.http.dashboard.templating import render_page
from api.http.problems import KINDS, MALFORMED, Problem, documented
from api.http.requests.context import RawBody, Services, ServicesDep, principal_with
from api.http.requests.limits.entrance import LINK, entrance_of, origin_of
from api.runs.journal import utc_now
from api.tables.access.audit import record_session
from api.tables.access.errors import RateExceeded
from api.tables.access.identity import NotAuthenticated, Principal, Scope
from api.tables.access.members import end_session, end_sessions
from hillclimb.protocol.payloads.projects.service import SessionCodePayload

router = APIRouter(tags=["browser"])

MAX_FIELDS = 10
"""Fields of a sign-in form that are read."""
PAGE_COOKIE = "hillclimb_sign_in"
"""Cookie of a browser that shows the page of a sign-in link."""
KeyHolder = Annotated[Principal, Depends(principal_with(Scope.RUNS_READ))]


@router.post(
    "/v1/session-codes",
    operation_id="create_session_code",
    summary="Create a one-time sign-in link",
    status_code=201,
    responses={**documented(KINDS[NotAuthenticated])},
)
def create_session_code(
    request: Request, services: ServicesDep, caller: KeyHolder
) -> SessionCodePayload:
    """Return a code for `GET /login?code=…&next=/runs/…`; it works once, within `expires_in_s`.

    The page has a button, which redeems the code: a link alone changes nobody's session.
    """
    with services.database.transaction() as session:
        code = mint_code(session, caller, secret=services.cursor_secret, now=utc_now())
        origin = origin_of(request, "POST /v1/session-codes")
        record_session(session, caller, "created", origin, table="session_codes")
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
    """Show the form; with a code, a page that says who it signs in, and its button.

    A link that signed in by itself would let anybody put a browser into a session of theirs.
    """
    if code is None:
        return form(next, has_provider=services.provider is not None)
    try:
        _refuse_made_up(request, services, code, "GET /login")
        with services.database.transaction() as session:
            principal = principal_of_code(session, code, now=utc_now())
    except (NotAuthenticated, RateExceeded) as error:
        return _again(error, next, services)
    return _confirm(request, services, principal, code, next)


@router.post("/login", include_in_schema=False)
def login(request: Request, services: ServicesDep, body: RawBody) -> Response:
    """Exchange the form's API key, or the code of a link, for a session."""
    try:
        fields = parse_qs(body.decode(errors="replace"), max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Problem(MALFORMED, f"The form has more than {MAX_FIELDS} fields.") from error
    target, code = fields.get("next", ["/"])[0], fields.get("code", [""])[0]
    try:
        principal = _sign_in(request, services, fields, code)
        principal.require(Scope.RUNS_READ)
    except (NotAuthenticated, RateExceeded) as error:
        return _again(error, target, services)
    with services.database.transaction() as session:
        record_session(session, principal, "created", origin_of(request, "POST /login"))
    return _enter(request, services, principal, target)


def _sign_in(
    request: Request, services: Services, fields: Mapping[str, Sequence[str]], code: str
) -> Principal:
    """Return whom the form signs in; raises NotAuthenticated or RateExceeded."""
    _refuse_foreign_origin(request, services)
    if not code:
        key, origin = fields.get("key", [""])[0].strip(), origin_of(request, "POST /login")
        entrance_of(request).check_here(origin, key)
        return entrance_of(request).enter(key, origin)
    _refuse_made_up(request, services, code, "POST /login")
    with services.database.transaction() as session:
        token, seen = fields.get("token", [""])[0], request.cookies.get(PAGE_COOKIE, "")
        if not seen:
            raise NotAuthenticated("Open the link again, and press its button in the same browser.")
        check_form_token(seen + code, token, secret=services.cursor_secret)
        return redeem_code(session, code, now=utc_now())


def _refuse_made_up(request: Request, services: Services, code: str, route: str) -> None:
    """Refuse a code that this service has never minted, without a look for it in the database.

    Raises NotAuthenticated, and RateExceeded where the address has sent too many of them: who has
    a code that was minted waits for nobody.
    """
    if is_minted(code, secret=services.cursor_secret):
        return
    entrance, origin = entrance_of(request), origin_of(request, route)
    entrance.check_here(origin, code, LINK)
    entrance.refuse(code, "The sign-in link was never created here.", origin, LINK)
    raise NotAuthenticated(USED)


def _again(error: NotAuthenticated | RateExceeded, target: str, services: Services) -> Response:
    """Return the form with the reason why nobody was signed in."""
    response = form(target, problem=str(error), has_provider=services.provider is not None)
    if isinstance(error, RateExceeded):
        response.status_code = HTTPStatus.TOO_MANY_REQUESTS
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return response


def _refuse_foreign_origin(request: Request, services: Services) -> None:
    """Raise NotAuthenticated for a form that a page of another site has sent."""
    origin = request.headers.get("origin")
    # Hosts without schemes: behind a proxy that ends TLS, the request has come by http.
    own = {request.url.netloc, urlsplit(services.settings.link_base).netloc} - {""}
    if origin is not None and urlsplit(origin).netloc not in own:
        raise NotAuthenticated("The form is not of this site: sign in on this page.")


def _confirm(
    request: Request, services: Services, principal: Principal, code: str, target: str
) -> Response:
    """Return the page of a link; its button works in the browser that has opened the page."""
    nonce = secrets.token_urlsafe(24)
    page = render_page(
        "confirm_sign_in",
        signed_in=False,
        next=local(target),
        code=code,
        token=form_token(nonce + code, secret=services.cursor_secret),
        key_name=principal.key_name,
        project=principal.project_id,
    )
    response = HTMLResponse(page, headers=PAGE_HEADERS)
    response.set_cookie(
        PAGE_COOKIE,
        nonce,
        max_age=CODE_S,
        path="/login",
        httponly=True,
        samesite="strict",
        secure=is_secure(request, services),
    )
    return response


@router.post("/logout", include_in_schema=False)
def logout(request: Request, services: ServicesDep) -> Response:
    """End the session of this browser, and every session of a person; their streams end too.

    A form of another site comes without the cookie, and must not take it away either.
    """
    try:
        _refuse_foreign_origin(request, services)
    except NotAuthenticated as error:
        return form("/", problem=str(error), has_provider=services.provider is not None)
    cookie = request.cookies.get(COOKIE)
    now = utc_now()
    with suppress(NotAuthenticated), services.database.transaction() as session:
        caller = read_session(session, cookie or "", secret=services.cursor_secret, now=now)
        if caller.key_id is None and caller.person_id is not None:
            end_sessions(session, caller.person_id, now=now)
        elif caller.session is not None:
            end_session(session, caller.project_id, caller.session)
        record_session(session, caller, "deleted", origin_of(request, "POST /logout"))
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
