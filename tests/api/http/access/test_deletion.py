"""Deletion and retention over HTTP: who may, what refuses it, and what every route says then."""

from __future__ import annotations

import re

import httpx
import pytest
from sqlalchemy import update

from api.http.requests.permissions import PERMISSIONS, Access
from api.runs import store
from api.scheduling import control
from api.tables import AuditRecord, Run
from api.tables.access.keys import NewKey, issue_key
from api.tables.access.members import set_member
from api.tables.access.roles import Role, Scope
from api.tables.database import Database
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.story import PROJECT, Story, spec
from tests.api.http.access.conftest import Caller, Cast

BODIES: dict[str, dict[str, object]] = {
    "POST /v1/runs/{run_id}/budget": {"usd": 1.0},
    "POST /v1/runs/{run_id}/rescorings": {"verifier": "present"},
    "POST /v1/runs/{run_id}/patterns/searches": {"detectors": "present"},
}


@pytest.fixture
def story(database: Database) -> Story:
    told = Story(database)
    told.prepare()
    return told


def ended(story: Story, name: str = "climb") -> str:
    run_id = story.running(spec(name))
    for step in (0, 40):
        story.push(run_id, story.evaluation(run_id, step, {"booking": 0.5}, tasks=8))
    story.push(run_id, story.checkpoint(run_id, 40))
    story.finish(run_id, 40, ReasonCode.TRAINER_CRASHED)
    with story.database.transaction() as session:
        control.cancel(session, store.lock_run(session, run_id), actor="key:x", now=story.now)
    return run_id


def member(cast: Cast, name: str, *, person_id: str | None = None) -> Caller:
    scopes = frozenset({Scope.RUNS_READ, Scope.RUNS_WRITE})
    with cast.database.transaction() as session:
        key = NewKey(name=name, scopes=scopes)
        issued = issue_key(session, PROJECT, key, person_id=person_id, actor="test")
    return cast.with_secret(issued.secret)


def check(response: httpx.Response, status: int, code: str) -> dict[str, object]:
    body: dict[str, object] = response.json()
    assert (response.status_code, body.get("code")) == (status, code), response.text
    return body


async def test_an_admin_and_whoever_submitted_it_may_delete_a_run_and_nobody_else(
    cast: Cast, story: Story, database: Database
) -> None:
    mine, theirs = ended(story), ended(story)
    with database.transaction() as session:
        session.execute(update(Run).where(Run.id == mine).values(created_by="key:me"))
    path = f"/v1/runs/{mine}"
    check(await cast.of("viewer", project_id=PROJECT)("DELETE", path), 403, "not_allowed")
    check(await member(cast, "other")("DELETE", path), 403, "not_allowed")
    check(await cast.of("admin")("DELETE", path), 404, "run_not_found")
    check(await cast.stranger("operator")("DELETE", path), 404, "run_not_found")
    accepted = await member(cast, "me")("DELETE", path)
    assert accepted.status_code == 202, accepted.text
    assert accepted.json() | {"created_at": ""} == {
        "object": "deleted_run",
        "id": mine,
        "name": "climb",
        "deleted_by": "key:me",
        "reason": "request",
        "created_at": "",
        "completed_at": None,
        "num_rows": 0,
        "num_bytes": 0,
    }
    admin = cast.of("admin", project_id=PROJECT)
    assert (await admin("DELETE", f"/v1/runs/{theirs}")).status_code == 202
    with database.transaction() as session:
        records = session.query(AuditRecord).filter_by(target=mine).all()
    assert [(each.actor, each.route) for each in records] == [
        ("key:me", "DELETE /v1/runs/{run_id}")
    ]
    kept = {"table": "deleted_runs", "id": mine, "action": "created", "before": {}}
    assert kept | {"after": {"name": "climb", "reason": "request"}} in records[0].changes


async def test_a_key_of_the_same_name_deletes_no_run_of_another_one(
    cast: Cast, story: Story, database: Database
) -> None:
    """Names of keys are not unique, and a run has nothing but the name of its submitter's."""
    one, another = ended(story), ended(story)
    with database.transaction() as session:
        session.execute(update(Run).values(created_by="key:laptop"))
        _, kim = set_member(session, PROJECT, "kim@example.com", Role.MEMBER, actor="test")
        person_id = kim.id
    kims = [member(cast, "laptop", person_id=person_id) for _ in range(2)]
    assert (await kims[1]("DELETE", f"/v1/runs/{one}")).status_code == 202
    others = member(cast, "laptop")
    for each in (*kims, others):
        check(await each("DELETE", f"/v1/runs/{another}"), 403, "not_allowed")
    admin = cast.of("admin", project_id=PROJECT)
    assert (await admin("DELETE", f"/v1/runs/{another}")).status_code == 202


async def test_a_run_that_goes_on_or_that_something_needs_is_not_deleted(
    cast: Cast, story: Story
) -> None:
    admin = cast.of("admin", project_id=PROJECT)
    live = story.running(spec("live"))
    check(await admin("DELETE", f"/v1/runs/{live}"), 409, "invalid_transition")
    run_id = ended(story)
    issue = {"title": "x", "severity": "critical", "baseline": f"{run_id}@0"}
    assert (await admin("POST", "/v1/issues", json=issue)).status_code == 201
    experiment = {"key": "v1", "title": "x", "hypothesis": "x", "baseline": run_id}
    assert (await admin("POST", "/v1/experiments", json=experiment)).status_code == 201
    fork = await admin(
        "POST",
        f"/v1/runs/{run_id}/fork",
        json={"step": 40, "changes": {"schedule.total_steps": 99}},
    )
    assert fork.status_code == 201, fork.text
    problem = check(await admin("DELETE", f"/v1/runs/{run_id}"), 409, "run_in_use")
    errors = problem["errors"]
    assert isinstance(errors, list)
    assert [each["code"] for each in errors] == ["run_not_ended", "in_experiment", "in_issue"]
    assert fork.json()["id"] in str(errors)
    # Each way out that the sentences name is one.
    assert (await admin("POST", f"/v1/runs/{fork.json()['id']}/cancel")).status_code == 200
    assert (await admin("DELETE", f"/v1/experiments/v1/runs/{run_id}")).status_code == 200
    other = ended(story)
    number = (await admin("GET", "/v1/issues")).json()["data"][0]["id"]
    edit = {"baseline": f"{other}@0"}
    assert (await admin("PATCH", f"/v1/issues/{number}", json=edit)).status_code == 200
    assert (await admin("DELETE", f"/v1/runs/{run_id}")).status_code == 202


@pytest.mark.invariant("no route answers for a run under deletion, whatever it joins")
async def test_no_route_reaches_a_deleted_run_while_its_rows_are_still_there(
    cast: Cast, story: Story, database: Database
) -> None:
    run_id, other = ended(story), ended(story, "other")
    admin = cast.of("admin", project_id=PROJECT)
    fills = {"step": "40", "path": "manifest.json", "rollout_id": "r1", "guard": "no_signal"}
    routes = [
        row
        for row, access in PERMISSIONS.items()
        if "{run_id}" in row and access in (Access.READ, Access.WRITE)
    ]
    assert len(routes) > 30
    assert (await admin("DELETE", f"/v1/runs/{run_id}")).status_code == 202
    for row in routes:
        method, _, path = row.partition(" ")
        path = path.replace("{run_id}", run_id)
        path = re.sub(r"\{([a-z_]+)(:path)?\}", lambda name: fills[name[1]], path)
        body = {"json": BODIES.get(row, {})} if method in ("POST", "PATCH") else {}
        response = await admin(method, path, **body)
        assert response.status_code == 410, (row, response.text)
    said = check(await admin("GET", f"/v1/runs/{run_id}"), 410, "run_deleted")
    assert "(climb) was deleted by key:test on 20" in str(said["detail"])
    check(await admin("DELETE", f"/v1/runs/{run_id}"), 410, "run_deleted")
    check(await cast.of("admin")("GET", f"/v1/runs/{run_id}"), 404, "run_not_found")
    for path in ("/v1/runs", "/v1/runs?results=true", "/v1/clusters", "/dashboard/runs"):
        response = await admin("GET", path)
        assert response.status_code == 200, response.text
        assert run_id not in response.text
    assert other in (await admin("GET", "/v1/runs")).text
    params = {"a": other, "b": run_id}
    check(await admin("GET", "/v1/compare", params=params), 410, "run_deleted")
    fork = await admin("POST", f"/v1/runs/{run_id}/fork", json={})
    check(fork, 410, "run_deleted")


async def test_requests_for_rollouts_that_retention_has_removed_say_so(
    cast: Cast, story: Story, database: Database
) -> None:
    run_id = ended(story)
    admin = cast.of("admin", project_id=PROJECT)
    rollouts = (await admin("GET", f"/v1/runs/{run_id}/trajectories")).json()["data"]
    rollout_id = rollouts[0]["rollout_id"]
    with database.transaction() as session:
        values = {"trajectories_removed_at": story.now, "metrics_sampled_at": story.now}
        session.execute(update(Run).where(Run.id == run_id).values(values))
    for method, path, body in (
        ("GET", f"trajectories/{rollout_id}", None),
        ("GET", f"tokens/{rollout_id}", None),
        ("GET", "exports/rollouts", None),
        ("POST", "rescorings", {"verifier": "present"}),
        ("POST", "patterns/searches", {"detectors": "present"}),
    ):
        options = {"json": body} if body else {}
        response = await admin(method, f"/v1/runs/{run_id}/{path}", **options)
        problem = check(response, 410, "artifact_removed")
        assert "HILLCLIMB_KEEP_TRAJECTORIES_DAYS" in str(problem["detail"]), path
    assert (await admin("GET", f"/v1/runs/{run_id}/trajectories")).json()["data"] == rollouts
    metrics = (await admin("GET", f"/v1/runs/{run_id}/metrics")).json()
    run = (await admin("GET", f"/v1/runs/{run_id}")).json()
    assert metrics["sampled_at"] == run["removed"]["metrics_sampled_at"]
    assert run["removed"]["token_values_removed_at"] is None
