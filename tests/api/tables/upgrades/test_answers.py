"""Every route that reads answers about rows of each released schema, after the upgrade."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from api.http.requests.permissions import PERMISSIONS, Access
from api.settings import Settings
from api.tables.access.identity import USER_SCOPES
from api.tables.database import Database
from tests.api.fixtures.application import make_application
from tests.api.http.access.conftest import make_key
from tests.api.http.conftest import RememberingBell, bearer
from tests.api.tables.upgrades.conftest import REVISIONS, Climbed, tags
from tests.fixtures.postgres import RunningPostgres

READS = (Access.READ, Access.ADMIN, Access.OPERATOR)
ENDLESS = "GET /v1/runs/{run_id}/events/stream"
OF_NO_ROW = {
    "GET /v1/acceptance/{target}",
    "GET /v1/agent-keys/self",
    "GET /v1/presets/{name}",
}
NO_ARTIFACT, NO_DATASET = "artifact_not_found", "dataset_not_found"
REFUSED = {
    "GET /v1/datasets/{name}/versions/{number}/diff": NO_DATASET,
    "GET /v1/datasets/{name}/versions/{number}/files/{file}": "invalid",
    "GET /v1/datasets/{name}/versions/{number}/tasks": NO_DATASET,
    "GET /v1/datasets/{name}/versions/{number}/tasks/{key:path}": NO_DATASET,
    "GET /v1/runs/{run_id}/checkpoints/{step}": NO_ARTIFACT,
    "GET /v1/runs/{run_id}/checkpoints/{step}/files/{path:path}": NO_ARTIFACT,
    "GET /v1/runs/{run_id}/exports/tracking": NO_ARTIFACT,
    "GET /v1/runs/{run_id}/probe": "no_such_probe",
    "GET /v1/runs/{run_id}/prompts": NO_ARTIFACT,
    "GET /v1/runs/{run_id}/tokens/{rollout_id:path}": NO_ARTIFACT,
    "GET /v1/runs/{run_id}/trajectories/{rollout_id:path}": NO_ARTIFACT,
    "GET /v1/runs/{run_id}/validation": "no_such_validation",
}
"""Routes that need a file or an event which no row is, with the code of their refusal."""
TABLE_OF = {
    "campaign_id": "campaigns",
    "issue_id": "issues",
    "key": "experiments",
    "webhook_id": "webhooks",
}
"""Objects of which a revision may have no table yet, by their placeholder."""
QUERIES = {
    "GET /v1/compare": "?a=id-{tag}-1@1&b=id-{tag}-1@1",
    "GET /v1/datasets/{name}/versions/{number}/diff": "?base=1",
}
IN_EVERY_RUN = (REVISIONS[0], REVISIONS[-1])
"""Rows of the first have gone through every migration; `make test-long` asks about the others."""


@pytest.fixture(scope="module")
def url(postgres: RunningPostgres, climbed: Climbed) -> str:
    """A copy for all revisions: requests add keys to it, and nothing else."""
    return postgres.copy(climbed.url)


@pytest.fixture
async def http(url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The application on the upgraded database."""
    settings = Settings.model_validate(
        {
            "database_url": url,
            "redis_url": "redis://127.0.0.1:1/0",
            "blobs_url": str(tmp_path / "blobs"),
            "secret_key": "for tests only",
        }
    )
    app = make_application(settings, RememberingBell())
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client,
    ):
        yield client


def routes(climbed: Climbed, tag: str) -> Iterator[str]:
    """Yield the routes that read, and of which the project has the object."""
    for row, access in PERMISSIONS.items():
        if not row.startswith("GET /v1/") or access not in READS or row in {ENDLESS, *OF_NO_ROW}:
            continue
        tables = {TABLE_OF[each] for each in re.findall(r"\{(\w+)\}", row) if each in TABLE_OF}
        if all((table, (f"id-{tag}-1",)) in climbed.inserted for table in tables):
            yield row


def path_of(row: str, tag: str) -> str:
    """Return the path of a route with the names of a project's only objects."""
    path = row.partition(" ")[2].replace(":path}", "}")
    path = re.sub(r"\{(number|step|base)\}", "1", path)
    path = path.replace("{rollout_id}", f"rollout_id-{tag}-1")
    path = re.sub(r"\{\w+_id\}", f"id-{tag}-1", path)
    path = re.sub(r"\{(\w+)\}", rf"\1-{tag}-1", path)
    return path + QUERIES.get(row, "").format(tag=tag)


@pytest.mark.invariant("rows of every released schema are readable after the upgrade")
@pytest.mark.parametrize(
    "revision",
    [
        pytest.param(each, marks=[] if each in IN_EVERY_RUN else [pytest.mark.long])
        for each in REVISIONS
    ],
)
async def test_every_route_answers_about_rows_of_a_revision(
    http: httpx.AsyncClient, climbed: Climbed, url: str, revision: str
) -> None:
    odd = []
    database = Database(url, pool=1)
    for tag in tags(revision):
        key = make_key(database, USER_SCOPES, project_id=f"id-{tag}-1")
        for row in routes(climbed, tag):
            answer = await http.get(path_of(row, tag), headers=bearer(key))
            code = answer.json()["code"] if answer.is_error else "answered"
            if code != REFUSED.get(row, "answered"):
                odd.append((tag, row, answer.status_code, answer.text[:300]))
    database.close()
    assert odd == []
