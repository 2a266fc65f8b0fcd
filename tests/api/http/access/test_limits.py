"""Rate limits per key and quotas per project."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from fastapi import FastAPI

from api.http.requests.limits.rates import BURST_S, Rates
from api.runs.journal import utc_now
from api.scheduling import queue
from api.tables import Run
from api.tables.access.errors import RateExceeded
from api.tables.database import Database
from tests.api.fixtures.migrated import PROJECT
from tests.api.http.access.conftest import Cast, principal
from tests.fixtures.factories import spec_body


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_gets_its_rate_back_with_time() -> None:
    clock = Clock()
    rates = Rates(per_minute=60, clock=clock)
    caller = principal("viewer")
    for _ in range(int(BURST_S)):
        rates.count(caller)
    with pytest.raises(RateExceeded) as refused:
        rates.count(caller)
    assert refused.value.retry_after_s == pytest.approx(1.0)
    clock.now += 1.0
    rates.count(caller)
    with pytest.raises(RateExceeded):
        rates.count(caller)


async def test_a_key_above_its_rate_is_told_when_to_come_back_and_others_go_on(
    cast: Cast, app: FastAPI
) -> None:
    app.state.rates = Rates(per_minute=6)
    fast, calm = cast.of("viewer"), cast.of("viewer")
    assert (await fast("GET", "/v1/runs")).status_code == 200
    refused = await fast("GET", "/v1/runs")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_exceeded")
    assert 1 <= int(refused.headers["Retry-After"]) <= 10
    assert "6 requests per minute" in refused.json()["detail"]
    assert (await calm("GET", "/v1/runs")).status_code == 200


async def set_quotas(cast: Cast, **quotas: int) -> None:
    path = f"/v1/projects/{PROJECT}/quotas"
    response = await cast.of("operator")("PUT", path, json=quotas)
    assert response.status_code == 200, response.text


async def test_quotas_show_their_use_and_which_are_defaults(cast: Cast) -> None:
    await set_quotas(cast, queued_runs=5)
    member = cast.of("member")
    await member("POST", "/v1/runs", json=spec_body())
    data = (await member("GET", "/v1/quotas")).json()["data"]
    by_name = {each["name"]: each for each in data}
    assert by_name["queued_runs"] == {
        "name": "queued_runs", "limit": 5, "used": 1, "is_default": False,
    }  # fmt: skip
    assert by_name["submissions_per_hour"]["used"] == 1
    assert by_name["running_runs"]["is_default"] is True


async def test_a_full_queue_refuses_another_run_until_one_is_cancelled(cast: Cast) -> None:
    await set_quotas(cast, queued_runs=1)
    member = cast.of("member")
    first = (await member("POST", "/v1/runs", json=spec_body())).json()
    refused = await member("POST", "/v1/runs", json=spec_body())
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert int(refused.headers["Retry-After"]) == 60
    other = await cast.stranger("member")("POST", "/v1/runs", json=spec_body())
    assert other.status_code == 201
    await member("POST", f"/v1/runs/{first['id']}/cancel")
    assert (await member("POST", "/v1/runs", json=spec_body())).status_code == 201


async def test_submissions_per_hour_say_when_the_oldest_no_longer_counts(
    cast: Cast, database: Database
) -> None:
    await set_quotas(cast, submissions_per_hour=1)
    member = cast.of("member")
    run = (await member("POST", "/v1/runs", json=spec_body())).json()

    def age(**by: int) -> None:
        with database.transaction() as session:
            session.get_one(Run, run["id"]).created_at = utc_now() - timedelta(**by)

    age(minutes=50)
    refused = await member("POST", "/v1/runs", json=spec_body())
    assert refused.status_code == 429
    assert 590 <= int(refused.headers["Retry-After"]) <= 600
    age(minutes=61)
    assert (await member("POST", "/v1/runs", json=spec_body())).status_code == 201


async def test_a_run_above_the_quota_of_running_runs_waits_and_says_so(
    cast: Cast, database: Database
) -> None:
    await set_quotas(cast, running_runs=0)
    runner = cast.of("runner")
    body = {"name": "box", "slots": 1, "hostname": "box"}
    registered = await runner("POST", "/v1/runners", json=body)
    assert registered.status_code == 200, registered.text
    run = (await cast.of("member")("POST", "/v1/runs", json=spec_body())).json()

    def reason() -> str | None:
        with database.transaction() as session:
            row = session.get_one(Run, run["id"])
            return queue.queue_position(session, row, now=utc_now()).reason

    assert reason() == "The project's quota of 0 running runs is used up."
    await set_quotas(cast, running_runs=1)
    assert reason() is None


async def test_a_version_above_the_quota_of_datasets_is_not_stored(cast: Cast) -> None:
    await set_quotas(cast, dataset_bytes=10)
    member = cast.of("member")
    task = {"task_key": "t", "prompt": "book a room", "env_key": "booking"}
    tasks = "\n".join(json.dumps(task | {"task_key": f"t{i}"}) for i in range(20))
    refused = await member("POST", "/v1/datasets/small/versions", content=tasks.encode())
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded"), refused.text
    assert (await member("GET", "/v1/datasets/small")).status_code == 404
    await set_quotas(cast)
    stored = await member("POST", "/v1/datasets/small/versions", content=tasks.encode())
    assert stored.status_code == 201, stored.text


async def test_projects_are_the_operators_and_their_first_key_is_an_admins(cast: Cast) -> None:
    operator = cast.of("operator")
    created = await operator("POST", "/v1/projects", json={"name": "new team"})
    assert created.status_code == 201, created.text
    project = created.json()
    admin = cast.with_secret(project["key"]["secret"])
    whoami = (await admin("GET", "/v1/whoami")).json()
    assert (whoami["project"], whoami["role"]) == ("new team", "admin")
    assert [each["id"] for each in (await admin("GET", "/v1/projects")).json()["data"]] == [
        project["id"]
    ]
    assert len((await operator("GET", "/v1/projects")).json()["data"]) > 1
    again = await operator("POST", "/v1/projects", json={"name": "new team"})
    assert (again.status_code, again.json()["code"]) == (409, "project_exists")
