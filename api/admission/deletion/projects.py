"""Deletion of a project by the operator: refused, or requested; the worker carries it out.

From the commit on no key, member or session of the project is admitted. The row of the project
stays, without its name, because the records of the audit belong to it: nobody may delete those.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import delete, exists, select, update
from sqlalchemy.orm import Session

from api.admission.deletion.dependents import ENDED, MAX_NAMED
from api.clusters.store import ClusterState
from api.tables import ApiKey, Cluster, Person, Project, ProjectMember, Run
from api.tables.access.errors import ProjectInUse
from api.tables.access.identity import DEFAULT_PROJECT, Principal
from api.tables.access.projects import get_project
from hillclimb.protocol.spec_problems import SpecProblem


def delete_project(
    session: Session, project_id: str, caller: Principal, *, now: datetime
) -> tuple[Project, str]:
    """Request the deletion of a project; return it with the name that it had.

    Raises:
        ProjectNotFound: there is no such project, or it was deleted.
        ProjectInUse: a run or a cluster of it has not ended, or it is the operator's own.
    """
    project = get_project(session, project_id)
    session.refresh(project, with_for_update=True)
    if project_id in (DEFAULT_PROJECT, caller.project_id):
        raise ProjectInUse(
            f"Project {project_id} is the operator's own: the service needs it.",
            [SpecProblem(pointer="", code="own_project", message="The operator's keys are in it.")],
        )
    if problems := [*_live_runs(session, project_id), *_live_clusters(session, project_id)]:
        sentences = " ".join(problem.message for problem in problems)
        raise ProjectInUse(f"Project {project.name} cannot be deleted. {sentences}", problems)
    name = project.name
    project.deleting_at, project.name = now, project.id
    session.flush()
    end_access(session, project_id, now=now)
    return project, name


def end_access(session: Session, project_id: str, *, now: datetime) -> None:
    """End the keys and memberships of a project, and forget people who are nowhere else."""
    keys = update(ApiKey).where(ApiKey.project_id == project_id)
    session.execute(keys.values(revoked_at=now, person_id=None))
    members = delete(ProjectMember).where(ProjectMember.project_id == project_id)
    people = session.scalars(members.returning(ProjectMember.person_id)).all()
    is_member = exists().where(ProjectMember.person_id == Person.id)
    has_key = exists().where(ApiKey.person_id == Person.id)
    session.execute(
        delete(Person).where(Person.id.in_(people), ~is_member, ~has_key),
        execution_options={"synchronize_session": False},
    )


def _live_runs(session: Session, project_id: str) -> Iterator[SpecProblem]:
    query = select(Run.id, Run.status).where(Run.project_id == project_id, Run.status.not_in(ENDED))
    for run_id, status in session.execute(query.order_by(Run.id).limit(MAX_NAMED)):
        message = f"Run {run_id} is {status}: cancel it first."
        yield SpecProblem(pointer="", code="run_not_ended", message=message)


def _live_clusters(session: Session, project_id: str) -> Iterator[SpecProblem]:
    query = select(Cluster.name).where(
        Cluster.project_id == project_id, Cluster.state != ClusterState.TERMINATED.value
    )
    for name in session.scalars(query.order_by(Cluster.name).limit(MAX_NAMED)):
        message = f"Cluster {name} is not terminated yet: delete the project afterwards."
        yield SpecProblem(pointer="", code="cluster_not_terminated", message=message)
