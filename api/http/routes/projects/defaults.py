"""`/v1/project/defaults`: what submitted specs of the project get where they leave a key out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.admission.defaults import defaults_of
from api.http.document.openapi import json_body
from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.bodies import parse_body
from api.http.requests.context import Admin, RawBody, Reader, Services, ServicesDep
from api.runs.errors import AddressRefused
from api.runs.journal import utc_now
from api.tables.access.defaults import find_defaults, replace_defaults
from api.tables.access.identity import NotAllowed, NotAuthenticated
from api.tables.access.secrets.errors import SecretMissing
from api.tables.access.secrets.store import require_names
from hillclimb.protocol.payloads.projects.defaults import ProjectDefaultsPayload
from hillclimb.spec.rules.project_defaults import ProjectDefaults

router = APIRouter(
    prefix="/v1/project/defaults",
    tags=["project"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed])},
)


@router.get("", operation_id="get_project_defaults", summary="Get the project's defaults")
def get_project_defaults(services: ServicesDep, caller: Reader) -> ProjectDefaultsPayload:
    """Return the defaults, and who set them when."""
    with services.database.transaction() as session:
        record = find_defaults(session, caller.project_id)
        return ProjectDefaultsPayload(
            defaults=defaults_of(session, caller.project_id).model_dump(mode="json"),
            operator=_operator(services),
            updated_by=record.updated_by if record else None,
            updated_at=record.updated_at if record else None,
        )


@router.put(
    "",
    operation_id="set_project_defaults",
    summary="Replace the project's defaults",
    responses={**documented(MALFORMED, INVALID, KINDS[SecretMissing], KINDS[AddressRefused])},
    openapi_extra=json_body("ProjectDefaults"),
)
def set_project_defaults(
    services: ServicesDep, caller: Admin, body: RawBody
) -> ProjectDefaultsPayload:
    """Replace all defaults; they concern runs that are submitted from now on."""
    defaults = parse_body(ProjectDefaults, body)
    tenancy = services.admission.tenancy
    for channel in defaults.channels():
        tenancy.refuse_channel(channel, caller.project_id, setting="slack_channel")
    with services.database.transaction() as session:
        require_names(
            session,
            caller.project_id,
            {f"A mapping for {name}": name for name in defaults.secret_names()},
        )
        record = replace_defaults(
            session,
            caller.project_id,
            defaults.model_dump(mode="json"),
            actor=caller.actor,
            now=utc_now(),
        )
        return ProjectDefaultsPayload(
            defaults=record.defaults,
            operator=_operator(services),
            updated_by=record.updated_by,
            updated_at=record.updated_at,
        )


def _operator(services: Services) -> dict[str, Any]:
    return services.settings.run_defaults.model_dump(
        mode="json", exclude_none=True, exclude_defaults=True
    )
