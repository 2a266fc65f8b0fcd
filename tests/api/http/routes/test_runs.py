"""`/v1/runs` as a client meets it."""

import asyncio
import re
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import event

from api.tables import Run
from api.tables.database import Database
from hillclimb.protocol.checkpoint_manifest import config_hash
from hillclimb.spec.run import RunSpec
from tests.api.http.conftest import READ_ONLY, RUNNER_TOKEN, STRANGER, RememberingBell, bearer
from tests.fixtures.factories import spec_body


async def create(client: httpx.AsyncClient, **sections: object) -> dict[str, Any]:
    response = await client.post("/v1/runs", json=spec_body(**sections))
    assert response.status_code == 201, response.text
    body: dict[str, Any] = response.json()
    return body


async def test_a_created_run_is_queued_and_resolved(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/runs", json=spec_body())
    run = response.json()
    assert response.status_code == 201
    assert response.headers["Location"] == f"/v1/runs/{run['id']}"
    assert (run["status"], run["attempt"], run["last_seq"]) == ("queued", 0, 1)
    assert run["spec"]["notify"] == {"slack": None}
    assert run["spec"]["optimizer"]["lr"] == 2.5e-4
    assert run["progress"] == {"step": 0, "total": 3, "eta_s": None, "phase": None}
    assert run["queue"] == {"position": 1, "reason": "No runner is connected."}
    assert run["created_by"] == "key:bootstrap"
    assert run["created_at"].endswith("Z")
    assert (await client.get(f"/v1/runs/{run['id']}")).json() == run


async def test_only_a_run_whose_turn_it_is_is_rung_for(
    client: httpx.AsyncClient, task_queue: RememberingBell
) -> None:
    await create(client)
    assert task_queue.rung == [], "no runner is connected: there is nothing to do yet"
    box = {"name": "box", "hostname": "box", "slots": 2}
    assert (await client.post("/v1/runners", json=box, headers=bearer(RUNNER_TOKEN))).is_success
    task_queue.rung.clear()
    run = await create(client)
    assert run["queue"] == {"position": 2, "reason": None}
    assert task_queue.rung == [run["id"]]
    run = await create(client)
    assert run["queue"] == {"position": 3, "reason": "Other runs come first."}
    assert run["id"] not in task_queue.rung


async def test_a_submission_takes_six_statements(client: httpx.AsyncClient, app: FastAPI) -> None:
    """Each is a round trip and a half millisecond of the process: they were fourteen, once."""
    await create(client)
    tables: list[str] = []

    def note(*call: Any) -> None:
        tables.append(re.findall(r"(?:FROM|INTO) (\w+)", call[2])[-1])

    engine = app.state.services.database._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        await create(client)
    finally:  # the engine serves later tests too
        event.remove(engine, "before_cursor_execute", note)
    assert len(tables) == 6, tables


async def test_the_same_idempotency_key_gives_the_same_run(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "once"}
    first = await client.post("/v1/runs", json=spec_body(), headers=headers)
    again = await client.post("/v1/runs", json=spec_body(), headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert len((await client.get("/v1/runs")).json()["data"]) == 1


async def test_an_idempotency_key_with_another_body_is_refused(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "once"}
    await client.post("/v1/runs", json=spec_body(), headers=headers)
    refused = await client.post("/v1/runs", json=spec_body(name="other"), headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_key_reused")


async def test_a_refused_spec_does_not_use_up_the_idempotency_key(
    client: httpx.AsyncClient,
) -> None:
    headers = {"Idempotency-Key": "once"}
    assert (await client.post("/v1/runs", json={}, headers=headers)).status_code == 422
    created = await client.post("/v1/runs", json=spec_body(), headers=headers)
    assert created.status_code == 201


async def test_concurrent_requests_with_one_key_make_one_run(
    client: httpx.AsyncClient, database: Database
) -> None:
    headers = {"Idempotency-Key": "race"}
    answers = await asyncio.gather(
        *(client.post("/v1/runs", json=spec_body(), headers=headers) for _ in range(12))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == 11
    with database.transaction() as session:
        assert session.query(Run).count() == 1


async def test_a_plan_resolves_and_warns_and_creates_nothing(client: httpx.AsyncClient) -> None:
    body = spec_body(algorithm={"shuffle_rewards": True})
    plan = (await client.post("/v1/runs/plan", json=body)).json()
    assert plan["spec"]["algorithm"]["grpo_norm_by_std"] is True
    assert plan["config_hash"] == config_hash(RunSpec.model_validate(plan["spec"]))
    assert "control run" in " ".join(plan["warnings"])
    assert plan["queue"] == {"position": 1, "reason": "No runner is connected."}
    assert (await client.get("/v1/runs")).json()["data"] == []
    created = await create(client, algorithm={"shuffle_rewards": True})
    assert (created["spec"], created["config_hash"]) == (plan["spec"], plan["config_hash"])


async def test_pages_follow_each_other_without_gap_or_repeat(client: httpx.AsyncClient) -> None:
    made = [(await create(client, name=f"run {n}"))["id"] for n in range(5)]
    seen: list[str] = []
    params: dict[str, str | int] = {"limit": 2}
    while True:
        page = (await client.get("/v1/runs", params=params)).json()
        seen += [run["id"] for run in page["data"]]
        if not page["has_more"]:
            break
        params["cursor"] = page["next_cursor"]
    assert seen == made[::-1]
    assert page["next_cursor"] is None


async def test_runs_made_after_the_first_page_do_not_shift_the_second(
    client: httpx.AsyncClient,
) -> None:
    made = [(await create(client))["id"] for _ in range(3)]
    first = (await client.get("/v1/runs", params={"limit": 2})).json()
    await create(client)
    params = {"limit": "2", "cursor": first["next_cursor"]}
    second = (await client.get("/v1/runs", params=params)).json()
    assert [run["id"] for run in second["data"]] == [made[0]]


async def test_a_cursor_belongs_to_its_filters_and_cannot_be_forged(
    client: httpx.AsyncClient,
) -> None:
    for _ in range(2):
        await create(client)
    cursor = (await client.get("/v1/runs", params={"limit": 1})).json()["next_cursor"]
    other = "B" if cursor[0] == "A" else "A"
    for params in (
        {"cursor": cursor, "status": "queued"},
        {"cursor": other + cursor[1:]},
        {"cursor": "nonsense!"},
        {"cursor": "aaaa"},
    ):
        refused = await client.get("/v1/runs", params=params)
        assert (refused.status_code, refused.json()["code"]) == (400, "cursor_rejected")


async def test_a_list_is_filtered_by_status_name_and_time(client: httpx.AsyncClient) -> None:
    first, second = await create(client, name="Alpha 1"), await create(client, name="beta")
    await client.post(f"/v1/runs/{second['id']}/cancel")

    async def ids(**params: str) -> list[str]:
        return [run["id"] for run in (await client.get("/v1/runs", params=params)).json()["data"]]

    assert await ids(status="cancelled") == [second["id"]]
    assert await ids(name="alpha") == [first["id"]]
    assert await ids(name="100%") == []
    assert await ids(created_after=first["created_at"]) == [second["id"]]
    assert await ids(created_before=second["created_at"]) == [first["id"]]


async def test_a_cancelled_run_says_why_it_ended(client: httpx.AsyncClient) -> None:
    run = await create(client)
    for _ in range(2):
        cancelled = await client.post(f"/v1/runs/{run['id']}/cancel")
        assert cancelled.status_code == 200
        assert cancelled.json()["end_reason"] == {
            "code": "cancelled_by_user",
            "category": "user",
            "retryable": False,
            "message": "A user cancelled it.",
        }


async def test_a_paused_run_rests_until_it_is_resumed(client: httpx.AsyncClient) -> None:
    run = await create(client)
    for _ in range(2):
        paused = await client.post(f"/v1/runs/{run['id']}/pause")
        assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    assert paused.json()["end_reason"]["code"] == "paused_by_user"
    resumed = await client.post(f"/v1/runs/{run['id']}/resume")
    assert (resumed.json()["id"], resumed.json()["status"]) == (run["id"], "queued")


async def test_an_ended_run_cannot_be_paused(client: httpx.AsyncClient) -> None:
    run = await create(client)
    await client.post(f"/v1/runs/{run['id']}/cancel")
    refused = await client.post(f"/v1/runs/{run['id']}/pause")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid_transition")
    assert "has ended" in refused.json()["detail"]


async def test_a_resume_without_checkpoint_is_a_conflict_in_a_sentence(
    client: httpx.AsyncClient,
) -> None:
    run = await create(client)
    await client.post(f"/v1/runs/{run['id']}/cancel")
    refused = await client.post(f"/v1/runs/{run['id']}/resume")
    assert (refused.status_code, refused.json()["code"]) == (409, "nothing_to_resume")
    assert "saved no checkpoint" in refused.json()["detail"]


@pytest.mark.parametrize("stop", ["pause", "cancel"])
async def test_a_resume_of_a_spec_that_this_version_refuses_says_where_and_what_to_do(
    client: httpx.AsyncClient, database: Database, stop: str
) -> None:
    run = await create(client)
    await client.post(f"/v1/runs/{run['id']}/{stop}")
    with database.transaction() as session:
        stored = session.get_one(Run, run["id"])
        stored.spec = stored.spec | {"rollout": stored.spec["rollout"] | {"gone": 1}}
    refused = await client.post(f"/v1/runs/{run['id']}/resume", headers={"Idempotency-Key": "k"})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (409, "spec_outdated")
    assert problem["retryable"] is False
    assert [each["pointer"] for each in problem["errors"]] == ["/rollout/gone"]
    assert "lineage.resumed_from" in problem["detail"]


async def test_a_lineage_that_names_no_checkpoint_is_refused(client: httpx.AsyncClient) -> None:
    source = {"run_id": "run_0000000000", "step": 1, "attempt": 1}
    body = spec_body(lineage={"resumed_from": source})
    refused = await client.post("/v1/runs", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "checkpoint_not_found")


@pytest.mark.parametrize("path", ["", "/cancel", "/pause", "/resume"])
async def test_a_run_of_another_project_is_not_there(client: httpx.AsyncClient, path: str) -> None:
    run = await create(client)
    method = "POST" if path else "GET"
    url = f"/v1/runs/{run['id']}{path}"
    answer = await client.request(method, url, headers=bearer(STRANGER))
    assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")
    listed = await client.get("/v1/runs", headers=bearer(STRANGER))
    assert listed.json()["data"] == []


async def test_a_reading_key_cannot_create_or_cancel(client: httpx.AsyncClient) -> None:
    run = await create(client)
    for path in ("/v1/runs", f"/v1/runs/{run['id']}/cancel"):
        answer = await client.post(path, json=spec_body(), headers=bearer(READ_ONLY))
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    read = await client.get(f"/v1/runs/{run['id']}", headers=bearer(READ_ONLY))
    assert read.status_code == 200
