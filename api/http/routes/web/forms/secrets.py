"""`/admin/secrets`: names and dates of the project's secrets; no page has a value."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, StringConstraints

from api.http.requests.context import RawBody, Services, ServicesDep
from api.http.routes.projects import secrets
from api.http.routes.web.dashboard import Visitor
from api.http.routes.web.forms.admin import AdminTab, Fields, answer_form, lead_back, show_tab
from api.tables.access import audit
from api.tables.access.identity import Principal
from hillclimb.spec.hosts import SECRET_NAME_PATTERN

router = APIRouter(include_in_schema=False)


class _SecretName(BaseModel):
    name: Annotated[str, StringConstraints(pattern=SECRET_NAME_PATTERN)]


@router.get("/admin/secrets")
def secrets_page(request: Request, services: ServicesDep, caller: Visitor) -> Response:
    """Show the secrets without their values; admins set and delete them."""
    return show_tab(request, services, caller, _tab(services))


@router.post("/admin/secrets")
def set_secret_form(
    request: Request, services: ServicesDep, caller: Visitor, body: RawBody
) -> Response:
    """Set a secret, or replace its value."""

    def act(admin: Principal, fields: Fields) -> Response:
        # Taken out: no page repeats it, also one about a mistake.
        value = fields.pop("value", "")
        hosts = fields.get("hosts", "").replace(",", " ").split()
        sent = json.dumps({"value": value, "hosts": hosts or None}).encode()
        secrets.set_secret(services, admin, _name(fields), sent)
        return lead_back("secrets", "secret")

    return answer_form(request, services, caller, body, _tab(services), act)


@router.post("/admin/secrets/delete")
def delete_secret_form(
    request: Request, services: ServicesDep, caller: Visitor, body: RawBody
) -> Response:
    """Delete a secret."""

    def act(admin: Principal, fields: Fields) -> Response:
        secrets.delete_secret(services, admin, _name(fields))
        return lead_back("secrets", "deleted")

    return answer_form(request, services, caller, body, _tab(services), act)


def _name(fields: Fields) -> str:
    name = _SecretName.model_validate({"name": fields.get("name", "").strip()}).name
    audit.name_target(name)
    return name


def _tab(services: Services) -> AdminTab:
    def build(caller: Principal) -> dict[str, object]:
        return {"secrets": secrets.list_secrets(services, caller).data}

    return AdminTab(name="secrets", build=build)
