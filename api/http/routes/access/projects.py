"""`/v1/projects`: projects and their quotas, for the operator; `/v1/quotas`: one's own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from sqlalchemy.orm import Session

from api.admission.deletion.projects import delete_project
from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.context import Operator, Reader, ServicesDep
from api.http.routes.access.bodies import CreateProject, SetQuotas
from api.http.routes.access.keys import describe_issued
from api.runs.journal import utc_now
from api.scheduling.capacity import quotas
from api.tables.access import projects
from api.tables.access.errors import ProjectExists, ProjectInUse, ProjectNotFound
from api.tables.access.identity import NotAllowed, NotAuthenticated
from api.tables.access.quotas import quotas_of, set_quotas
from hillclimb.protocol.payloads.projects.access import (
    DeletedProjectPayload,
    NewProjectPayload,
    ProjectList,
    ProjectPayload,
    QuotaPayload,
    QuotasPayload,
)

router = APIRouter(
    prefix="/v1",
    tags=["access"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)

ProjectId = Annotated[str, Path(max_length=60, examples=["prj_06dzk3m8v5q2w9x4t7r1c0n6ab"])]


@router.post(
    "/projects",
    operation_id="create_project",
    summary="Create a project",
    status_code=201,
    responses={**documented(MALFORMED, KINDS[ProjectExists])},
)
def create_project(
    services: ServicesDep, caller: Operator, body: CreateProject
) -> NewProjectPayload:
    """Create a project; return it with the key of its admin, whose `secret` is shown once."""
    with services.database.transaction() as session:
        project, issued = projects.create_project(session, caller, body.name)
        return NewProjectPayload(
            id=project.id,
            name=project.name,
            created_at=project.created_at,
            key=describe_issued(issued, owner=None),
        )


@router.get("/projects", operation_id="list_projects", summary="List projects")
def list_projects(
    services: ServicesDep,
    caller: Reader,
    after: Annotated[
        str | None, Query(max_length=60, description="Id of the last project of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ProjectList:
    """Return one page of projects by id: all of them for the operator, else the caller's."""
    with services.database.transaction() as session:
        rows = projects.list_projects(session, caller, after=after, limit=limit + 1)
    data = [ProjectPayload.model_validate(row) for row in rows[:limit]]
    return ProjectList(data=data, has_more=len(rows) > limit)


@router.delete(
    "/projects/{project_id}",
    operation_id="delete_project",
    summary="Delete a project",
    status_code=202,
    responses={**documented(KINDS[ProjectNotFound], KINDS[ProjectInUse])},
)
def remove_project(
    services: ServicesDep, caller: Operator, project_id: ProjectId
) -> DeletedProjectPayload:
    """Delete a project with its runs, datasets, secrets, keys and members, for good.

    Refused while a run or a cluster of it has not ended; `errors` name them. Its keys and sessions
    end with the response; rows and files are deleted in the background. Its audit log stays.
    """
    with services.database.transaction() as session:
        project, name = delete_project(session, project_id, caller, now=utc_now())
    assert project.deleting_at is not None
    return DeletedProjectPayload(id=project.id, name=name, deleting_at=project.deleting_at)


@router.put(
    "/projects/{project_id}/quotas",
    operation_id="set_quotas",
    summary="Set the quotas of a project",
    responses={**documented(MALFORMED, KINDS[ProjectNotFound])},
)
def replace_quotas(
    services: ServicesDep, caller: Operator, project_id: ProjectId, body: SetQuotas
) -> QuotasPayload:
    """Replace the quotas of a project; what is running or stored already stays."""
    with services.database.transaction() as session:
        projects.get_project(session, project_id)
        set_quotas(session, project_id, body.model_dump(), actor=caller.actor)
        return _describe(session, project_id)


@router.get("/quotas", operation_id="get_quotas", summary="Get the quotas of the project")
def get_quotas(services: ServicesDep, caller: Reader) -> QuotasPayload:
    """Return the quotas of the caller's project and their use."""
    with services.database.transaction() as session:
        return _describe(session, caller.project_id)


def _describe(session: Session, project_id: str) -> QuotasPayload:
    current = quotas_of(session, project_id)
    used = quotas.use_of(session, project_id, now=utc_now())
    data = [
        QuotaPayload(name=name, limit=limit, used=used[name], is_default=name in current.defaults)
        for name, limit in current.limits.items()
    ]
    return QuotasPayload(project_id=project_id, data=data)
