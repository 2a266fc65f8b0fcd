"""`/admin/project`: quotas, limits of spending, and the defaults of submitted specs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.http.dashboard.forms.spec_values import as_json, read_text, write_text
from api.http.requests.context import RawBody, Services, ServicesDep
from api.http.routes.access import projects
from api.http.routes.access.bodies import SetQuotas
from api.http.routes.clusters import clusters
from api.http.routes.clusters.clusters import NewLimits
from api.http.routes.projects import defaults
from api.http.routes.web.dashboard import Visitor
from api.http.routes.web.forms.admin import AdminTab, Fields, answer_form, lead_back, show_tab
from api.tables.access.identity import Principal, Scope

router = APIRouter(include_in_schema=False)

QUOTAS = {
    "queued_runs": "Waiting runs",
    "running_runs": "Running runs",
    "submissions_per_hour": "Submissions per hour",
    "dataset_bytes": "Bytes of datasets",
}


@router.get("/admin/project")
def project_page(request: Request, services: ServicesDep, caller: Visitor) -> Response:
    """Show quotas, limits and defaults; admins change the latter two, the operator quotas too."""
    return show_tab(request, services, caller, _tab(services))


@router.post("/admin/project/defaults")
def set_defaults_form(
    request: Request, services: ServicesDep, caller: Visitor, body: RawBody
) -> Response:
    """Replace the defaults of the project."""

    def act(admin: Principal, fields: Fields) -> Response:
        text = fields.get("defaults", "").strip()
        document = read_text(text) if text else {}
        defaults.set_project_defaults(services, admin, as_json(document))
        return lead_back("project", "defaults")

    return answer_form(request, services, caller, body, _tab(services), act)


@router.post("/admin/project/limits")
def set_limits_form(
    request: Request, services: ServicesDep, caller: Visitor, body: RawBody
) -> Response:
    """Replace the limits of spending and of clusters."""

    def act(admin: Principal, fields: Fields) -> Response:
        names: tuple[str, ...] = ("usd", "hours", "max_clusters")
        filled = {name: fields[name] for name in names if name in fields}
        clusters.set_limits(services, admin, NewLimits.model_validate(_numbers(filled)))
        return lead_back("project", "limits")

    return answer_form(request, services, caller, body, _tab(services), act)


@router.post("/admin/project/quotas")
def set_quotas_form(
    request: Request, services: ServicesDep, caller: Visitor, body: RawBody
) -> Response:
    """Replace the quotas of the project: for the operator alone."""

    def act(admin: Principal, fields: Fields) -> Response:
        admin.require(Scope.OPERATOR)
        filled = {name: fields[name] for name in QUOTAS if name in fields}
        quotas = SetQuotas.model_validate(_numbers(filled))
        projects.replace_quotas(services, admin, admin.project_id, quotas)
        return lead_back("project", "quotas")

    return answer_form(request, services, caller, body, _tab(services), act)


def _numbers(filled: Mapping[str, str]) -> dict[str, float | str]:
    """Return the fields of a form as numbers; a text that is none stays, and is refused as one."""
    numbers: dict[str, float | str] = dict(filled)
    for name, text in filled.items():
        with suppress(ValueError):
            numbers[name] = float(text)
    return numbers


def _tab(services: Services) -> AdminTab:
    def build(caller: Principal) -> dict[str, object]:
        stored = defaults.get_project_defaults(services, caller)
        filled_in = _filled_in(stored.defaults)
        return {
            "quotas": [
                each.model_dump() | {"label": QUOTAS[each.name]}
                for each in projects.get_quotas(services, caller).data
            ],
            "limits": clusters.get_limits(services, caller),
            "defaults": write_text(filled_in) if filled_in else "",
            "updated_by": stored.updated_by,
            "updated_at": stored.updated_at,
        }

    return AdminTab(name="project", build=build)


def _filled_in(value: Any) -> Any:  # noqa: ANN401 (any JSON)
    """Return defaults without what is null or empty, which stands for none."""
    if isinstance(value, list | tuple):
        return [_filled_in(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _filled_in(each) for key, each in value.items()}
    return {key: each for key, each in inner.items() if each not in (None, {}, [])}
