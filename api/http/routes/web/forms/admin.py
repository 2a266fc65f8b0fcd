"""Pages under `/admin`: who may see and change, and how a refusal is shown."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from api.http.dashboard.forms.spec_values import TextRejected
from api.http.dashboard.headers import PAGE_HEADERS
from api.http.problems import INVALID
from api.http.requests.context import Services
from api.http.routes.web.dashboard import (
    REFUSALS,
    Visitor,
    redirect_to_login,
    refusal_kind,
    show_page,
    show_refusal,
)
from api.http.routes.web.run_actions import form_fields, token_of
from api.http.routes.web.run_pages import address_of
from api.tables.access.identity import Principal, Scope
from hillclimb.protocol.spec_problems import sentence_of

router = APIRouter(include_in_schema=False)

TABS: Mapping[str, str] = {
    "members": "Members",
    "keys": "Keys",
    "secrets": "Secrets",
    "project": "Quotas and defaults",
    "audit": "Audit log",
}
DONE: Mapping[str, str] = {
    "member": "The member's role is set; it holds from the next request on.",
    "removed": "The member is removed; their keys and sessions stop at the next request.",
    "revoked": "The key is revoked for good.",
    "secret": "The secret is stored; attempts that start from now on receive it.",
    "deleted": "The secret is deleted.",
    "defaults": "The defaults are stored; they concern runs that are submitted from now on.",
    "limits": "The limits are set; clusters that exist stay.",
    "quotas": "The quotas are set; what is running or stored already stays.",
}
"""What a page says after a form, by the word in its address."""

REJECTIONS: tuple[type[Exception], ...] = (*REFUSALS, ValidationError, TextRejected)
"""What is said about a form on its page."""
Fields = dict[str, str]
Build = Callable[[Principal], Mapping[str, Any]]


@router.get("/admin")
def admin_page(request: Request, caller: Visitor) -> Response:
    """Lead to the first page that the visitor may see."""
    if caller is None:
        return redirect_to_login(address_of(request))
    return RedirectResponse("/admin/members", status_code=303, headers=PAGE_HEADERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTab:
    """A page of `/admin`."""

    name: str
    build: Build
    """Makes the contents of the page for a caller."""
    scope: Scope = Scope.RUNS_READ
    """Needed to see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedForm:
    """A form that was refused: the reason, and its fields, to be corrected."""

    status: int
    sentence: str
    fields: Fields


def show_tab(
    request: Request, services: Services, caller: Principal | None, tab: AdminTab
) -> Response:
    """Return a page of `/admin`; strangers sign in first."""
    if caller is None:
        return redirect_to_login(address_of(request))
    try:
        caller.require(tab.scope)
        return _show(request, services, caller, tab)
    except REFUSALS as error:
        return show_refusal(error)


def answer_form(
    request: Request,
    services: Services,
    caller: Principal | None,
    body: bytes,
    tab: AdminTab,
    act: Callable[[Principal, Fields], Response],
) -> Response:
    """Do what an admin's form says; where that is refused, show its page with the reason."""
    if caller is None:
        return redirect_to_login(f"/admin/{tab.name}")
    try:
        fields = form_fields(request, services, caller, body, scope=Scope.ADMIN)
    except REFUSALS as error:
        return show_refusal(error)
    try:
        return act(caller, fields)
    except REJECTIONS as error:
        kind = refusal_kind(error) if isinstance(error, REFUSALS) else INVALID
        refused = RefusedForm(status=kind.status.value, sentence=_sentence(error), fields=fields)
        return _show(request, services, caller, tab, refused)


def lead_back(tab: str, done: str) -> Response:
    """Return the redirect after a form that was done."""
    return RedirectResponse(f"/admin/{tab}?done={done}", status_code=303, headers=PAGE_HEADERS)


def _show(
    request: Request,
    services: Services,
    caller: Principal,
    tab: AdminTab,
    refused: RefusedForm | None = None,
) -> Response:
    done = DONE.get(request.query_params.get("done", ""), "")
    return show_page(
        f"forms/{tab.name}",
        status=refused.status if refused else 200,
        tab=tab.name,
        tabs=TABS,
        token=token_of(request, services),
        key=secrets.token_urlsafe(16),
        is_admin=Scope.ADMIN in caller.scopes,
        is_operator=Scope.OPERATOR in caller.scopes,
        done="" if refused else done,
        problem=refused.sentence if refused else "",
        filled=refused.fields if refused else {},
        **tab.build(caller),
    )


def _sentence(error: Exception) -> str:
    """Return why a form is refused; of a value that does not fit, with the name of its field."""
    if not isinstance(error, ValidationError):
        return str(error)
    sentences = []
    for detail in error.errors(include_url=False)[:3]:
        name = ".".join(str(part) for part in detail["loc"])
        sentences.append(f"{name}: {sentence_of(detail)}" if name else sentence_of(detail))
    return "; ".join(sentences)
