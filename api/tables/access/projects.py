"""Projects: created by the operator, with a first key for their admin."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.tables import Project
from api.tables.access.errors import ProjectExists, ProjectNotFound
from api.tables.access.identity import Principal
from api.tables.access.keys import IssuedKey, NewKey, issue_key
from api.tables.access.roles import Scope
from api.tables.ids import new_id

ADMIN_SCOPES = frozenset({Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.ADMIN})


def create_project(session: Session, caller: Principal, name: str) -> tuple[Project, IssuedKey]:
    """Create a project and the key of its admin; raises ProjectExists."""
    project = Project(id=new_id("prj"), name=name)
    try:
        with session.begin_nested():
            session.add(project)
            session.flush()
    except IntegrityError as error:
        raise ProjectExists(f"A project is named {name!r} already: choose another name.") from error
    first = NewKey(name="admin", scopes=ADMIN_SCOPES)
    issued = issue_key(session, project.id, first, person_id=None, actor=caller.actor)
    return project, issued


def list_projects(
    session: Session, caller: Principal, *, after: str | None, limit: int
) -> Sequence[Project]:
    """Return projects by id, behind `after`: all of them for the operator, else the caller's."""
    query = select(Project).where(Project.deleting_at.is_(None))
    if Scope.OPERATOR.value not in caller.scopes:
        query = query.where(Project.id == caller.project_id)
    if after is not None:
        query = query.where(Project.id > after)
    return session.scalars(query.order_by(Project.id).limit(limit)).all()


def get_project(session: Session, project_id: str) -> Project:
    """Return a project; raises ProjectNotFound also for one that was deleted."""
    project = session.get(Project, project_id)
    if project is None or project.deleting_at is not None:
        raise ProjectNotFound(f"There is no project {project_id!r}.")
    return project
