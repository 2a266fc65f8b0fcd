"""A runner's life over HTTP, and a trainer's pushes."""

import httpx
import pytest

from api.runs.errors import AttemptNotFound
from api.runs.journal import utc_now
from api.runs.store import lock_run
from api.scheduling import runners
from api.scheduling.advance import advance
from api.tables.database import Database
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import Event, IngestBatch
from hillclimb.protocol.launch import EndReport, LaunchPlan, RegisteredRunner, RegisterRunner
from tests.api.fixtures.migrated import OTHER_PROJECT
from tests.api.fixtures.stage import Stage
from tests.api.http.conftest import RUNNER_TOKEN, RememberingBell, bearer
from tests.fixtures.factories import ended, phase, spec_body, started

RUNNER = bearer(RUNNER_TOKEN)
BOX = {"name": "box", "hostname": "box", "slots": 1}


async def register(client: httpx.AsyncClient) -> str:
    answer = await client.post("/v1/runners", json=BOX, headers=RUNNER)
    assert answer.status_code == 200, answer.text
    return RegisteredRunner.model_validate(answer.json()).runner_id


async def push(client: httpx.AsyncClient, token: str, *events: Event) -> httpx.Response:
    body = IngestBatch(events=events).model_dump_json()
    return await client.post("/v1/ingest", content=body, headers=bearer(token))


async def launch(client: httpx.AsyncClient, stage: Stage) -> tuple[str, LaunchPlan]:
    """Register, submit, offer and claim."""
    runner_id = await register(client)
    run_id = (await client.post("/v1/runs", json=spec_body())).json()["id"]
    with stage.database.transaction() as session:
        advance(session, lock_run(session, run_id), now=utc_now())
    answer = await client.post(f"/v1/runners/{runner_id}/claim", headers=RUNNER)
    assert answer.status_code == 200, answer.text
    return runner_id, LaunchPlan.model_validate(answer.json())


async def test_a_run_is_claimed_trained_and_finished_over_http(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    runner_id, plan = await launch(client, stage)
    assert plan.ingest_url == "http://service/v1/ingest"
    held = {"attempts": [plan.attempt_id]}
    beat = await client.post(f"/v1/runners/{runner_id}/heartbeat", json=held, headers=RUNNER)
    assert beat.json()["commands"] == []
    pushed = await push(client, plan.attempt_token, started(1), phase(2), ended(3))
    assert pushed.json() == {"accepted": 3, "last_trainer_seq": 3}
    end = {"reason": "completed", "message": "done", "exit_code": 0, "last_trainer_seq": 3}
    url = f"/v1/runners/{runner_id}/attempts/{plan.attempt_id}/end"
    for _ in range(2):
        assert (await client.post(url, json=end, headers=RUNNER)).status_code == 204
    run = (await client.get(f"/v1/runs/{plan.run_id}")).json()
    assert (run["status"], run["attempts"][0]["exit_code"]) == ("succeeded", 0)
    assert run["queue"] is None


async def test_an_end_with_a_zero_character_is_taken(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    runner_id, plan = await launch(client, stage)
    end = {"reason": "trainer_crashed", "message": "a\0b"}
    url = f"/v1/runners/{runner_id}/attempts/{plan.attempt_id}/end"
    assert (await client.post(url, json=end, headers=RUNNER)).status_code == 204
    run = (await client.get(f"/v1/runs/{plan.run_id}")).json()
    assert run["end_reason"]["message"] == "a\ufffdb"


async def test_nothing_to_claim_is_204(client: httpx.AsyncClient) -> None:
    runner_id = await register(client)
    answer = await client.post(f"/v1/runners/{runner_id}/claim", headers=RUNNER)
    assert (answer.status_code, answer.content) == (204, b"")


async def test_a_registration_rings_for_the_runs_that_wait(
    client: httpx.AsyncClient, task_queue: RememberingBell
) -> None:
    run_id = (await client.post("/v1/runs", json=spec_body())).json()["id"]
    task_queue.rung.clear()
    await register(client)
    assert task_queue.rung == [run_id]


async def test_an_unknown_runner_is_told_to_register(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/runners/rnr_none/claim", headers=RUNNER)
    assert (answer.status_code, answer.json()["code"]) == (404, "runner_not_found")


async def test_a_users_key_is_no_runners_key_and_the_other_way_round(
    client: httpx.AsyncClient,
) -> None:
    assert (await client.post("/v1/runners", json=BOX)).status_code == 403
    assert (await client.get("/v1/runs", headers=RUNNER)).status_code == 403


@pytest.mark.parametrize("field", ["name", "slots"])
async def test_a_bad_registration_is_pointed_at(client: httpx.AsyncClient, field: str) -> None:
    answer = await client.post("/v1/runners", json={**BOX, field: -1}, headers=RUNNER)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["errors"][0]["pointer"] == f"/{field}"


async def test_a_registration_of_a_newer_runner_is_taken(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/runners", json={**BOX, "novelty": 1}, headers=RUNNER)
    assert answer.status_code == 200


async def test_broken_json_of_a_runner_is_malformed(client: httpx.AsyncClient) -> None:
    headers = {**RUNNER, "Content-Type": "application/json"}
    answer = await client.post("/v1/runners", content=b'{"name"', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert "at character" in answer.json()["detail"]


async def test_the_token_of_a_replaced_attempt_is_refused(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    runner_id, plan = await launch(client, stage)
    await push(client, plan.attempt_token, started(1))
    await register(client)
    zombie = await push(client, plan.attempt_token, phase(2))
    assert (zombie.status_code, zombie.json()["code"]) == (409, "attempt_superseded")
    assert zombie.headers["x-should-retry"] == "false"
    held = {"attempts": [plan.attempt_id]}
    beat = await client.post(f"/v1/runners/{runner_id}/heartbeat", json=held, headers=RUNNER)
    assert [c["action"] for c in beat.json()["commands"]] == ["kill"]


async def test_an_unknown_attempt_token_is_401(client: httpx.AsyncClient) -> None:
    answer = await push(client, "hca_unknown", phase(1))
    assert (answer.status_code, answer.json()["code"]) == (401, "unknown_token")


async def test_a_bad_event_is_pointed_at_and_nothing_is_recorded(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    _, plan = await launch(client, stage)
    good = started(1).model_dump(mode="json")
    body = {"events": [good, {**phase(2).model_dump(mode="json"), "phase": "lunch"}]}
    headers = bearer(plan.attempt_token)
    answer = await client.post("/v1/ingest", json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["errors"][0]["pointer"].startswith("/events/1")
    run = (await client.get(f"/v1/runs/{plan.run_id}")).json()
    assert run["status"] == "starting"


async def test_a_number_of_an_event_may_be_written_with_a_point(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    _, plan = await launch(client, stage)
    body = {"events": [started(1).model_dump(mode="json") | {"step": 0.0, "trainer_seq": 1.0}]}
    answer = await client.post("/v1/ingest", json=body, headers=bearer(plan.attempt_token))
    assert answer.json() == {"accepted": 1, "last_trainer_seq": 1}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", True),
        ("step", "1"),
        ("at", 1_577_836_800),
        ("at", "2026-01-01T00:00:00"),
        ("at", "9999-12-31T23:59:59-10:00"),
    ],
)
async def test_a_value_that_counts_only_as_another_type_or_no_time_is_refused(
    client: httpx.AsyncClient, stage: Stage, field: str, value: object
) -> None:
    _, plan = await launch(client, stage)
    body = {"events": [started(1).model_dump(mode="json") | {field: value}]}
    answer = await client.post("/v1/ingest", json=body, headers=bearer(plan.attempt_token))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["errors"][0]["pointer"].endswith(f"/{field}")


async def test_a_runner_neither_ends_nor_waits_for_a_run_of_another_project(
    client: httpx.AsyncClient, stage: Stage, database: Database, database_url: str
) -> None:
    _, plan = await launch(client, stage)
    register_foreign = RegisterRunner(name="box", hostname="box", slots=1)
    now = utc_now()
    end = EndReport(reason=ReasonCode.COMPLETED, message="gone")
    with database.transaction() as session:
        foreign = runners.register(session, OTHER_PROJECT, register_foreign, now=now).id
    impatient = Database(database_url, lock_timeout_s=0.2)

    def report() -> None:
        with impatient.transaction() as other:
            runner = runners.get_runner(other, OTHER_PROJECT, foreign)
            runners.report_end(other, runner, plan.attempt_id, end, now=now)

    with database.transaction() as session:
        lock_run(session, plan.run_id)
        with pytest.raises(AttemptNotFound):
            report()
    impatient.close()
    assert (await client.get(f"/v1/runs/{plan.run_id}")).json()["status"] == "starting"
