"""Two projects and random requests: nothing of one is read or changed with a key of the other."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import text

from api.http.requests.limits.rates import Rates
from api.http.requests.permissions import PAGES, PERMISSIONS, Access
from api.tables import Base
from api.tables.database import Database
from tests.api.fixtures.story import PROJECT as OWNER
from tests.api.fixtures.story import Story, spec
from tests.api.http.access.conftest import Caller, Cast
from tests.fixtures.factories import spec_body

MARK = "crownjewel"
"""Part of everything that the owner wrote and no path names."""
ROUTES = [row for row, access in PERMISSIONS.items() if access not in PAGES | {Access.OPEN}]
WEBHOOK = "https://example.org/hook"
OF_THE_OWNER = frozenset(
    {"run_id", "campaign_id", "issue_id", "key_id", "runner_id", "attempt_id", "webhook_id"}
)
"""Parameters whose values are unique in the service: a foreign one is never found."""
Objects = Mapping[str, list[str]]


async def populate(owner: Caller, story: Story) -> Objects:
    """Give the owner at least one object of every kind; return their names by path parameter."""
    run_id = story.running(spec(name=MARK))
    for step in (0, 40):
        story.push(run_id, story.evaluation(run_id, step, {"booking": 0.5}, tasks=8))
    story.push(run_id, story.checkpoint(run_id, 40))
    attempt_id = story.plans[run_id].attempt_id
    waiting = story.submit(spec(name=MARK))

    async def create(path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = await owner("POST", path, json=body)
        assert response.status_code in (200, 201), response.text
        created: dict[str, Any] = response.json()
        return created

    issue = {"title": MARK, "severity": "critical", "baseline": f"{run_id}@0"}
    campaign = {
        "name": MARK,
        "base": {"data": {"env_keys": ["booking"], "eval_tasks_per_env": 8}},
        "models": [{"name": "a", "source": "builtin:tiny-qwen3-a"}],
        "decodings": [{"name": "greedy", "temperature": 0.0}],
    }
    tasks = [{"task_key": f"t{i}", "prompt": MARK, "env_key": "booking"} for i in range(20)]
    content = "\n".join(map(json.dumps, tasks)).encode()
    stored = await owner("POST", "/v1/datasets/vault/versions", content=content)
    assert stored.status_code == 201, stored.text
    exclusion = {"scope": "task", "key": "t1", "reason": MARK}
    await owner("PUT", f"/v1/members/{MARK}@example.org", json={"role": "viewer"})
    excluded = await owner(
        "POST", "/v1/datasets/vault/exclusions", json={"exclusions": [exclusion]}
    )
    exclusions = (await owner("GET", "/v1/datasets/vault/exclusions")).json()["data"]
    assert excluded.status_code in (200, 201), excluded.text
    await create("/v1/experiments", {"key": "v1", "title": MARK, "hypothesis": MARK})
    return {
        "run_id": [run_id, waiting],
        "run": [run_id],
        "issue_id": [(await create("/v1/issues", issue))["id"]],
        "campaign_id": [(await create("/v1/campaigns", campaign))["id"]],
        "key_id": [(await create("/v1/keys", {"name": MARK, "scopes": ["runs:read"]}))["id"]],
        "exclusion_id": [each["id"] for each in exclusions],
        "runner_id": [story.runner_id],
        "attempt_id": [attempt_id],
        "project_id": [OWNER],
        "name": ["vault"],
        "key": ["v1", "t1"],
        "email": ["someone@example.org"],
        "number": ["1"],
        "step": ["0", "40"],
        "file": ["tasks"],
        "path": ["manifest.json"],
        "rollout_id": ["r1"],
        "guard": ["no_signal"],
        "team_id": ["T1"],
        "user_id": ["U1"],
        "target": ["wandb"],
        "webhook_id": [(await create("/v1/webhooks", {"url": WEBHOOK, "description": MARK}))["id"]],
    }


def body_for(row: str, objects: Objects, rng: random.Random) -> dict[str, Any]:
    """Return a body that names the owner's objects where bodies can."""
    run_id = objects["run_id"][0]
    bodies: dict[str, list[dict[str, Any]]] = {
        "POST /v1/runs": [
            spec_body(lineage={"resumed_from": f"{run_id}@40"}),
            spec_body(lineage={"forked_from": run_id}),
            spec_body(data={"dataset": "vault@1"}),
        ],
        "POST /v1/issues": [
            {"title": "x", "severity": "critical", "baseline": f"{run_id}@0"},
        ],
        "POST /v1/experiments/{key}/runs": [{"run_id": run_id, "role": "baseline"}],
        "POST /v1/runs/{run_id}/budget": [{"usd": 1.0}],
        "PATCH /v1/issues/{issue_id}": [{"title": "stolen"}],
        "PATCH /v1/experiments/{key}": [{"next_steps": ["stolen"]}],
        "PUT /v1/members/{email}": [{"role": "admin"}],
        "POST /v1/keys": [{"name": "x", "scopes": ["runs:read"]}],
        "POST /v1/datasets/{name}/exclusions": [
            {"exclusions": [{"scope": "task", "key": "t2", "reason": "stolen"}]}
        ],
    }
    bodies["POST /v1/runs/plan"] = bodies["POST /v1/runs"]
    return rng.choice(bodies.get(row, [{}]))


QUERIES = ("limit", "after", "before", "cursor", "baseline", "candidate", "step", "run_id", "base")


def request_for(row: str, objects: Objects, rng: random.Random) -> tuple[str, str, dict[str, Any]]:
    """Return method, path and options of a random request of a route for the owner's objects."""
    method, path = row.split(" ")
    path = re.sub(r"\{([a-z_]+)(:path)?\}", lambda name: rng.choice(objects[name[1]]), path)
    flat = [value for values in objects.values() for value in values]
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        options["params"] = {name: rng.choice(flat) for name in rng.sample(QUERIES, 2)}
    if row == "GET /v1/compare":
        options["params"] = {"baseline": objects["run_id"][0], "candidate": objects["run_id"][0]}
    if method != "GET":
        options["json"] = body_for(row, objects, rng)
    return method, path, options


def rows_of_owner(database: Database) -> dict[str, list[str]]:
    """Return every row of the owner, but the times at which keys were used."""
    found: dict[str, list[str]] = {}
    with database.transaction() as session:
        for name, table in Base.metadata.tables.items():
            column = "id" if name == "projects" else "project_id"
            where = f"t.{column} = :p"
            source = f"{name} t"
            if column not in table.columns:
                if "run_id" not in table.columns:
                    continue
                source += " JOIN runs ON runs.id = t.run_id"
                where = "runs.project_id = :p"
            query = text(f"SELECT to_jsonb(t) - 'last_used_at' FROM {source} WHERE {where}")
            rows = session.execute(query, {"p": OWNER}).scalars()
            found[name] = sorted(json.dumps(row, sort_keys=True) for row in rows)
    return found


@pytest.mark.invariant("every route, with the names of another project, reads and changes nothing")
async def test_every_route_reads_and_changes_nothing_of_another_project(
    cast: Cast, database: Database
) -> None:
    await cross(cast, database, num_random=60)


@pytest.mark.long
async def test_ten_thousand_random_requests_read_and_change_nothing_of_another_project(
    cast: Cast, database: Database, app: FastAPI
) -> None:
    app.state.rates = Rates(per_minute=1_000_000)
    await cross(cast, database, num_random=10_000)


async def cross(cast: Cast, database: Database, *, num_random: int) -> None:
    """Send a request to every route, then random ones, with the owner's names and other keys."""
    story = Story(database)
    story.prepare()
    owner = cast.of("admin", project_id=OWNER)
    objects = await populate(owner, story)
    strangers = [cast.stranger(role) for role in ("admin", "member", "viewer", "runner")]
    before = rows_of_owner(database)
    assert all(before[name] for name in ("runs", "issues", "campaigns", "api_keys", "events"))
    rng = random.Random(19)
    # Every route once, then routes at random.
    routes = ROUTES + rng.choices(ROUTES, k=num_random)
    for row in routes:
        caller = strangers[0] if rng.random() < 0.7 else rng.choice(strangers)
        method, path, options = request_for(row, objects, rng)
        response = await caller(method, path, **options)
        shown = (row, options, response.status_code, response.text[:300])
        assert response.status_code < 500, shown
        assert MARK not in response.text, shown
        named = set(re.findall(r"\{([a-z_]+)", row)) & OF_THE_OWNER
        assert not named or response.status_code in (400, 401, 403, 404, 422), shown
        if response.is_success:
            assert not any(value in response.text for value in objects["run_id"]), shown
    assert rows_of_owner(database) == before
    # The same requests do reach the owner's objects with the owner's key.
    for row in ("GET /v1/runs/{run_id}", "GET /v1/issues/{issue_id}", "GET /v1/datasets/{name}"):
        method, path, _ = request_for(row, objects, rng)
        assert (await owner(method, path)).status_code == 200
