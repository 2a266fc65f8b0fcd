"""`/login/oidc`: people sign in through the provider of identities."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.templating import render_page
from api.http.oidc.provider import Provider
from api.http.oidc.sign_in import COOKIE, SIGN_IN_S, SignIn, begin_sign_in, seal, unseal
from api.http.problems import NOT_FOUND, Problem
from api.http.requests.context import Services, ServicesDep
from api.http.routes.web.sessions import form, is_secure, local, set_session
from api.runs.journal import utc_now
from api.tables.access.errors import SignInFailed
from api.tables.access.identity import Principal, principal_of_person
from api.tables.access.members import ConfirmedIdentity, roles_of, sign_in

router = APIRouter(include_in_schema=False)

PATH = "/login/oidc"
MAX_PROJECTS = 1000
"""Memberships of a person among which a named project is looked for."""


@router.get(PATH)
def begin(
    request: Request,
    services: ServicesDep,
    next: Annotated[str, Query(max_length=300)] = "/",
    project: Annotated[str | None, Query(max_length=60)] = None,
) -> Response:
    """Send the browser to the provider; a cookie remembers this sign-in for ten minutes."""
    provider = _provider(services)
    begun = begin_sign_in(local(next), project, now=utc_now())
    try:
        address = provider.authorization_url(
            state=begun.state,
            nonce=begun.nonce,
            verifier=begun.verifier,
            redirect_uri=_redirect_uri(services),
        )
    except SignInFailed as error:
        return form(next, problem=str(error), has_provider=True)
    response = RedirectResponse(address, status_code=303, headers=PAGE_HEADERS)
    response.set_cookie(
        COOKIE,
        seal(begun, secret=services.cursor_secret),
        max_age=SIGN_IN_S,
        path=PATH,
        httponly=True,
        # Lax: the provider sends the browser back, and a strict cookie would stay behind.
        samesite="lax",
        secure=is_secure(request, services),
    )
    return response


@router.get(f"{PATH}/callback")
def finish(
    request: Request,
    services: ServicesDep,
    state: Annotated[str, Query(max_length=500)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
    error: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """Open the session of the person whom the provider confirms."""
    provider = _provider(services)
    try:
        begun = unseal(
            request.cookies.get(COOKIE), state, secret=services.cursor_secret, now=utc_now()
        )
        _refuse_ended(code, error)
        caller = _enter(services, begun, _confirmed(provider, services, begun, code))
    except SignInFailed as failure:
        return form("/", problem=str(failure), has_provider=True)
    # A page, no redirect: browsers send a strict cookie only once our own page leads on.
    page = render_page("signed_in", signed_in=False, next=local(begun.next))
    response = HTMLResponse(page, headers=PAGE_HEADERS)
    response.delete_cookie(COOKIE, path=PATH)
    set_session(response, request, services, caller)
    return response


def _refuse_ended(code: str, error: str) -> None:
    if error or not code:
        raise SignInFailed("The provider of identities ended the sign-in: try again.")


def _confirmed(
    provider: Provider, services: Services, begun: SignIn, code: str
) -> ConfirmedIdentity:
    token = provider.redeem(code, verifier=begun.verifier, redirect_uri=_redirect_uri(services))
    return provider.verify(token, nonce=begun.nonce, now=utc_now())


def _enter(services: Services, begun: SignIn, identity: ConfirmedIdentity) -> Principal:
    """Return the person as a member of a project; raises SignInFailed for people without any."""
    with services.database.transaction() as session:
        person = sign_in(session, identity, now=utc_now())
        projects = [each.project_id for each in roles_of(session, person.id, limit=MAX_PROJECTS)]
        if not projects:
            raise SignInFailed("You are no member of any project: ask an admin to add you.")
        chosen = begun.project or projects[0]
        if chosen not in projects:
            raise SignInFailed("You are no member of this project: ask one of its admins.")
        return principal_of_person(session, chosen, person.id)


def _provider(services: Services) -> Provider:
    if services.provider is None:
        raise Problem(NOT_FOUND, "This service has no provider of identities: sign in with a key.")
    return services.provider


def _redirect_uri(services: Services) -> str:
    return f"{services.settings.link_base}{PATH}/callback"
