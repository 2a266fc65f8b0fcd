"""Deletion of a project leaves its audit, its row without a name, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from api.admission.deletion.projects import delete_project
from api.tables import ApiKey, AuditRecord, DeletedRun, Person, Project, ProjectMember
from api.tables.access import members
from api.tables.access.errors import NotAuthenticated, ProjectInUse, ProjectNotFound
from api.tables.access.identity import DEFAULT_PROJECT, Principal, Scope, authenticate
from api.tables.access.keys import NewKey, issue_key
from api.tables.access.projects import get_project, list_projects
from api.tables.access.roles import Role
from api.tables.database import Database
from hillclimb.datasets.format.files import PREFIX
from hillclimb.protocol.rundir import run_key
from tests.api.fixtures.one_row_each import fill, traces
from tests.api.fixtures.story import PROJECT, START, Story, spec
from tests.worker.run_simulation import PROJECT as OTHER
from tests.worker.runs.removal.conftest import End
from worker.context import WorkerContext
from worker.deadlines import LATE_BLOBS, PROJECT_GRACE
from worker.runs.removal.deadline import Deadline
from worker.runs.removal.sweep import sweep

OPERATOR = Principal(
    project_id=DEFAULT_PROJECT,
    key_id="key_operator",
    key_name="operator",
    scopes=frozenset({Scope.RUNS_READ, Scope.OPERATOR}),
)
NOW = START + timedelta(hours=1)


@pytest.fixture(autouse=True)
def _operators_project(database: Database) -> None:
    with database.transaction() as session:
        session.merge(Project(id=DEFAULT_PROJECT, name="default"))


def request(database: Database) -> None:
    with database.transaction() as session:
        project, name = delete_project(session, PROJECT, OPERATOR, now=NOW)
        assert (project.id, name) == (PROJECT, PROJECT)


def test_of_a_project_with_a_row_in_every_table_only_its_audit_and_its_id_are_left(
    ended: End, context: WorkerContext, database: Database
) -> None:
    run_id = ended()
    second = ended("second")
    with database.transaction() as session:
        fill(session, PROJECT, run_id)
        version_id = (
            session.connection().exec_driver_sql("SELECT id FROM dataset_versions").scalar()
        )
        before = traces(session, PROJECT)
        other = traces(session, OTHER)
    assert len(before) > 25
    context.store.put(f"{PREFIX}/{version_id}/tasks.jsonl.gz", b"tasks")
    context.store.put(f"{PREFIX}/dsv_other/tasks.jsonl.gz", b"tasks")
    request(database)
    late = NOW + PROJECT_GRACE + timedelta(seconds=1)
    for now in (NOW, NOW, late):
        sweep(context, now=now, deadline=Deadline(60.0))
    with database.transaction() as session:
        left = traces(session, PROJECT)
        assert set(left) == {"audit_records", "deleted_runs", "projects"}
        project = session.get_one(Project, PROJECT)
        assert (project.name, project.deleted_at) == (PROJECT, late)
        assert set(traces(session, run_id)) == {"audit_records", "deleted_runs"}
        assert {each.id for each in session.scalars(select(DeletedRun))} == {run_id, second}
        record = session.scalars(
            select(AuditRecord).where(AuditRecord.project_id == DEFAULT_PROJECT)
        ).one()
        assert (record.target, record.changes[0]["action"]) == (PROJECT, "deleted")
        assert traces(session, OTHER) == other
        assert session.scalars(select(Person)).all() == []
    assert context.store.list("") == (f"{PREFIX}/dsv_other/tasks.jsonl.gz",)
    # The records of its runs go once no trainer can have uploaded anything more.
    context.store.put(run_key(run_id, "attempt-1/events/000009.jsonl"), b"late")
    sweep(context, now=late + LATE_BLOBS)
    with database.transaction() as session:
        assert set(traces(session, run_id)) == {"audit_records"}
        assert set(traces(session, PROJECT)) == {"audit_records", "projects"}
    assert context.store.list("") == (f"{PREFIX}/dsv_other/tasks.jsonl.gz",)


def test_its_keys_and_members_are_shut_out_at_once_and_people_of_other_projects_stay(
    ended: End, database: Database
) -> None:
    ended()
    with database.transaction() as session:
        new = NewKey(name="k", scopes=frozenset({Scope.RUNS_READ}))
        secret = issue_key(session, PROJECT, new, person_id=None, actor="test").secret
        for project_id, email in ((PROJECT, "a@x.org"), (PROJECT, "b@x.org"), (OTHER, "b@x.org")):
            members.set_member(session, project_id, email, Role.ADMIN, actor="test")
        session.flush()
        person_id = session.scalar(select(Person.id).where(Person.email == "a@x.org"))
        issue_key(session, PROJECT, new, person_id=person_id, actor="test")
        assert authenticate(session, secret, now=NOW).project_id == PROJECT
    request(database)
    with database.transaction() as session:
        with pytest.raises(NotAuthenticated):
            authenticate(session, secret, now=NOW)
        assert session.scalars(select(Person.email)).all() == ["b@x.org"]
        assert session.scalars(select(ProjectMember.project_id)).all() == [OTHER]
        assert all(key.revoked_at == NOW for key in session.scalars(select(ApiKey)))
        with pytest.raises(ProjectNotFound):
            get_project(session, PROJECT)
        with pytest.raises(ProjectNotFound):
            delete_project(session, PROJECT, OPERATOR, now=NOW)
        listed = list_projects(session, OPERATOR, after=None, limit=10)
        assert [each.id for each in listed] == [DEFAULT_PROJECT, OTHER]


def test_a_project_with_a_live_run_and_the_operators_own_are_not_deleted(
    story: Story, database: Database
) -> None:
    run_id = story.running(spec("live"))
    with database.transaction() as session:
        with pytest.raises(ProjectInUse) as refused:
            delete_project(session, PROJECT, OPERATOR, now=NOW)
        assert [problem.code for problem in refused.value.problems] == ["run_not_ended"]
        assert run_id in str(refused.value)
        with pytest.raises(ProjectInUse, match="operator's own"):
            delete_project(session, DEFAULT_PROJECT, OPERATOR, now=NOW)


def test_a_run_submitted_just_before_the_request_is_cancelled_and_deleted(
    story: Story, context: WorkerContext, database: Database
) -> None:
    request(database)
    late = story.submit()  # its request was admitted before
    for _ in range(3):
        sweep(context, now=NOW)
    with database.transaction() as session:
        assert session.get_one(DeletedRun, late).completed_at == NOW
    sweep(context, now=NOW + PROJECT_GRACE + timedelta(seconds=1))
    with database.transaction() as session:
        assert session.get_one(Project, PROJECT).deleted_at is not None
