"""`/admin/keys`: the keys of the project; a secret is on one page, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session

from api.http.problems import KINDS, Problem
from api.http.requests.context import RawBody, Services, ServicesDep, request_key
from api.http.routes.access import keys
from api.http.routes.access.bodies import CreateKey, RotateKey
from api.http.routes.web.dashboard import Visitor, show_page
from api.http.routes.web.forms.admin import (
    TABS,
    AdminTab,
    Fields,
    answer_form,
    lead_back,
    show_tab,
)
from api.tables.access import idempotency
from api.tables.access.idempotency import IdempotencyKeyReused, StoredResponse
from api.tables.access.identity import Principal, Scope
from api.tables.access.roles import RUNNER_SCOPES, USER_SCOPES
from hillclimb.protocol.payloads.projects.access import IssuedKeyPayload

router = APIRouter(include_in_schema=False)

LIST_LIMIT = 50
Issue = Callable[[Session], IssuedKeyPayload]


@router.get("/admin/keys")
def keys_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    before: Annotated[str, Query(max_length=60)] = "",
) -> Response:
    """Show the keys, to admins alone."""
    return show_tab(request, services, caller, _tab(services, before))


@router.post("/admin/keys")
def create_key_form(
    request: Request, services: ServicesDep, caller: Visitor, body: RawBody
) -> Response:
    """Create a key and show its secret."""

    def act(admin: Principal, fields: Fields) -> Response:
        day = fields.get("expires", "")
        new = CreateKey.model_validate(
            {
                "name": fields.get("name", "").strip(),
                "scopes": [name[6:] for name in fields if name.startswith("scope.")],
                "expires_at": f"{day}T23:59:59Z" if day else None,
                "owner": fields.get("owner", "").strip() or None,
            }
        )
        return _once(services, admin, "/admin/keys", fields, lambda s: keys.issue(s, admin, new))

    return answer_form(request, services, caller, body, _tab(services), act)


@router.post("/admin/keys/{key_id}/rotate")
def rotate_key_form(
    request: Request, services: ServicesDep, caller: Visitor, key_id: str, body: RawBody
) -> Response:
    """Give a key a new secret and show it."""

    def act(admin: Principal, fields: Fields) -> Response:
        grace = RotateKey.model_validate_strings({"grace_hours": fields.get("grace_hours", "24")})
        path = f"/admin/keys/{key_id}/rotate"
        return _once(services, admin, path, fields, lambda s: keys.rotate(s, admin, key_id, grace))

    return answer_form(request, services, caller, body, _tab(services), act)


@router.post("/admin/keys/{key_id}/revoke")
def revoke_key_form(
    request: Request, services: ServicesDep, caller: Visitor, key_id: str, body: RawBody
) -> Response:
    """Revoke a key."""

    def act(admin: Principal, _: Fields) -> Response:
        keys.revoke_key(services, admin, key_id)
        return lead_back("keys", "revoked")

    return answer_form(request, services, caller, body, _tab(services), act)


def _once(
    services: Services, admin: Principal, path: str, fields: Fields, issue: Issue
) -> Response:
    """Show the secret of a key; a repeated form, such as a double click, changes nothing more."""
    request = request_key(admin, path, fields.get("key"), b"")
    with services.database.transaction() as session:
        if request is not None and idempotency.begin(session, request) is not None:
            raise Problem(
                KINDS[IdempotencyKeyReused],
                "This form was sent before, and the secret was shown then. Is it lost? Rotate the"
                " key: that makes a new one.",
            )
        issued = issue(session)
        if request is not None:
            idempotency.finish(session, request, StoredResponse(status=201, response={}))
    return show_page("forms/issued", issued=issued, tab="keys", tabs=TABS)


def _tab(services: Services, before: str = "") -> AdminTab:
    def build(caller: Principal) -> dict[str, object]:
        page = keys.list_keys(services, caller, before=before or None, limit=LIST_LIMIT)
        grantable = [*USER_SCOPES, *RUNNER_SCOPES]
        if Scope.OPERATOR not in caller.scopes:
            grantable.remove(Scope.OPERATOR)
        return {
            "keys": page.data,
            "has_more": page.has_more,
            "scopes": grantable,
            "own": caller.key_id,
            "is_later": bool(before),
        }

    return AdminTab(name="keys", build=build, scope=Scope.ADMIN)
