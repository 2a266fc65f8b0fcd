"""`/login/oidc`: people sign in through the provider of identities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.http.dashboard.headers import PAGE_HEADERS
from api.http.dashboard.templating import render_page
from api.http.oidc.provider import Provider
from api.http.oidc.sign_in import (
    COOKIE,
    SIGN_IN_S,
    Choice,
    SignIn,
    begin_sign_in,
    seal,
    seal_choice,
    unseal,
    unseal_choice,
)
from api.http.problems import MALFORMED, NOT_FOUND, Problem
from api.http.requests.context import RawBody, Services, ServicesDep
from api.http.requests.limits.entrance import origin_of
from api.http.routes.web.sessions import MAX_FIELDS, form, is_secure, local, set_session
from api.runs.journal import utc_now
from api.tables.access import members
from api.tables.access.audit import record_session
from api.tables.access.errors import SignInFailed
from api.tables.access.identity import principal_of_person
from api.tables.access.members import ConfirmedIdentity, Invitation

router = APIRouter(include_in_schema=False)

PATH = "/login/oidc"
MAX_INVITATIONS = 20
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
        person_id, project_id, invitations = _choose(
            services, begun, _confirmed(provider, services, begun, code)
        )
    except SignInFailed as failure:
        return form("/", problem=str(failure), has_provider=True)
    if project_id is None:
        # The cookie stays: it says that the buttons are pressed in the same browser.
        return _ask(services, begun, person_id, invitations)
    return _opened(request, services, begun, project_id, person_id)


@router.post(f"{PATH}/accept")
def accept_invitation(request: Request, services: ServicesDep, body: RawBody) -> Response:
    """Join the project of a page's button, and open a session in it."""
    _provider(services)
    try:
        fields = parse_qs(body.decode(errors="replace"), max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Problem(MALFORMED, f"The form has more than {MAX_FIELDS} fields.") from error
    choice = fields.get("choice", [""])[0]
    secret, now = services.cursor_secret, utc_now()
    try:
        accepted = unseal_choice(choice, secret=secret)
        begun = unseal(request.cookies.get(COOKIE), accepted.state, secret=secret, now=now)
        with services.database.transaction() as session:
            members.accept(session, accepted.project_id, accepted.person_id, now=now)
    except SignInFailed as failure:
        return form("/", problem=str(failure), has_provider=True)
    return _opened(request, services, begun, accepted.project_id, accepted.person_id)


def _ask(
    services: Services, begun: SignIn, person_id: str, invitations: Sequence[Invitation]
) -> Response:
    """Return the page of a person's invitations, each with a button."""
    choices = [
        Choice(state=begun.state, person_id=person_id, project_id=each.project_id)
        for each in invitations
    ]
    sealed = [seal_choice(each, secret=services.cursor_secret) for each in choices]
    page = render_page(
        "invitations", signed_in=False, invitations=list(zip(invitations, sealed, strict=True))
    )
    return HTMLResponse(page, headers=PAGE_HEADERS)


def _opened(
    request: Request, services: Services, begun: SignIn, project_id: str, person_id: str
) -> Response:
    """Return the page that leads on, with the cookie of the person's session."""
    with services.database.transaction() as session:
        caller = principal_of_person(session, project_id, person_id)
        origin = origin_of(request, f"{request.method} {request.url.path}")
        record_session(session, caller, "created", origin)
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


def _choose(
    services: Services, begun: SignIn, identity: ConfirmedIdentity
) -> tuple[str, str | None, Sequence[Invitation]]:
    """Return the person and the project to open, or null and the invitations to show.

    No project opens that the person has not joined: another one might have been added by anybody.
    Raises SignInFailed for people without a project.
    """
    with services.database.transaction() as session:
        person = members.sign_in(session, identity, now=utc_now())
        roles = members.roles_of(session, person.id, limit=MAX_PROJECTS)
        if not roles:
            raise SignInFailed("You are no member of any project: ask an admin to add you.")
        if begun.project is not None:
            roles = [each for each in roles if each.project_id == begun.project]
        joined = [each.project_id for each in roles if each.accepted_at is not None]
        if not roles:
            raise SignInFailed("You are no member of this project: ask one of its admins.")
        invitations = () if joined else members.invitations_of(session, roles[:MAX_INVITATIONS])
        return person.id, joined[0] if joined else None, invitations


def _provider(services: Services) -> Provider:
    if services.provider is None:
        raise Problem(NOT_FOUND, "This service has no provider of identities: sign in with a key.")
    return services.provider


def _redirect_uri(services: Services) -> str:
    return f"{services.settings.link_base}{PATH}/callback"
