"""`/v1/audit`: the audit log of the project."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.http.problems import INVALID, KINDS, documented
from api.http.requests.context import Admin, ServicesDep
from api.tables.access import audit
from api.tables.access.audit import AuditFilters
from api.tables.access.identity import NotAllowed, NotAuthenticated
from hillclimb.protocol.payloads.projects.access import AuditList, AuditPayload
from hillclimb.spec.section import Moment

router = APIRouter(
    prefix="/v1/audit",
    tags=["access"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)


async def read_filters(
    actor: Annotated[
        str | None, Query(max_length=300, description="Such as `key:ci` or `person:ADDRESS`.")
    ] = None,
    route: Annotated[
        str | None, Query(max_length=200, description="Part of method and path.")
    ] = None,
    target: Annotated[
        str | None, Query(max_length=300, description="Id of what was changed.")
    ] = None,
    since: Annotated[Moment | None, Query()] = None,
    until: Annotated[Moment | None, Query()] = None,
) -> AuditFilters:
    """Return the filters of the query string."""
    return AuditFilters(actor=actor, route=route, target=target, since=since, until=until)


@router.get("", operation_id="list_audit_records", summary="Read the audit log")
def list_audit_records(
    services: ServicesDep,
    caller: Admin,
    filters: Annotated[AuditFilters, Depends(read_filters)],
    before: Annotated[
        str | None, Query(max_length=60, description="Id of the last record of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> AuditList:
    """Return one page of the changes of the project, newest first: one per successful request."""
    with services.database.transaction() as session:
        rows = audit.list_records(
            session, caller.project_id, filters, before=before, limit=limit + 1
        )
    data = [AuditPayload.model_validate(row) for row in rows[:limit]]
    return AuditList(data=data, has_more=len(rows) > limit)
