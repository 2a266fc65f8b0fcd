"""`/admin/members`: the people of the project and their roles."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from api.http.requests.context import RawBody, Services, ServicesDep
from api.http.routes.access import members
from api.http.routes.access.bodies import Email, SetMember
from api.http.routes.web.dashboard import Visitor
from api.http.routes.web.forms.admin import AdminTab, Fields, answer_form, lead_back, show_tab
from api.tables.access import audit
from api.tables.access.identity import Principal
from api.tables.access.roles import Role

router = APIRouter(include_in_schema=False)

LIST_LIMIT = 100


class _Address(BaseModel):
    address: Email


@router.get("/admin/members")
def members_page(
    request: Request,
    services: ServicesDep,
    caller: Visitor,
    after: Annotated[str, Query(max_length=254)] = "",
) -> Response:
    """Show the members; admins add, change and remove them."""
    return show_tab(request, services, caller, _tab(services, after))


@router.post("/admin/members")
def set_member_form(
    request: Request, services: ServicesDep, caller: Visitor, body: RawBody
) -> Response:
    """Add a member, or change a role."""

    def act(admin: Principal, fields: Fields) -> Response:
        email = _email(fields)
        members.set_member(
            services, admin, email, SetMember.model_validate({"role": fields.get("role")})
        )
        return lead_back("members", "member")

    return answer_form(request, services, caller, body, _tab(services), act)


@router.post("/admin/members/remove")
def remove_member_form(
    request: Request, services: ServicesDep, caller: Visitor, body: RawBody
) -> Response:
    """Remove a member."""

    def act(admin: Principal, fields: Fields) -> Response:
        members.remove_member(services, admin, _email(fields))
        return lead_back("members", "removed")

    return answer_form(request, services, caller, body, _tab(services), act)


def _email(fields: Fields) -> str:
    email = _Address.model_validate({"address": fields.get("email", "").strip()}).address
    audit.name_target(email)
    return email


def _tab(services: Services, after: str = "") -> AdminTab:
    def build(caller: Principal) -> dict[str, object]:
        page = members.list_members(services, caller, after=after or None, limit=LIST_LIMIT)
        return {"members": page.data, "has_more": page.has_more, "roles": [*Role], "after": after}

    return AdminTab(name="members", build=build)
