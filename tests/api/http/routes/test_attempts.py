"""The first node of a rented cluster over HTTP: exchange, heartbeats, the end."""

import dataclasses
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI

from api.clusters import store as clusters
from api.runs import store
from api.runs.journal import utc_now
from api.scheduling import attempts
from api.scheduling.attempts import AttemptEnd
from api.tables import Run
from api.tables.access.identity import DEFAULT_PROJECT as PROJECT
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import IngestBatch
from hillclimb.protocol.launch import BootstrapClaim, NodePlan
from tests.api.clusters.renting import OTHER_NONCE, Rented, rent
from tests.api.fixtures.stage import Stage
from tests.api.http.conftest import RememberingBell, bearer
from tests.fixtures.factories import started

SECRET = "for tests only"
SECRETS = {"AWS_SECRET_ACCESS_KEY": "the-fleet-key"}
END = {"reason": "completed", "message": "done", "exit_code": 0, "last_trainer_seq": 1}


@pytest.fixture
def rented(stage: Stage, app: FastAPI) -> Rented:
    app.state.services = dataclasses.replace(app.state.services, node_secrets=SECRETS)
    return rent(stage.database, PROJECT, now=utc_now())


async def ask(client: httpx.AsyncClient, body: BootstrapClaim) -> httpx.Response:
    nobody = {"Authorization": ""}
    return await client.post("/v1/attempts/claim", json=body.model_dump(), headers=nobody)


async def taken(client: httpx.AsyncClient, rented: Rented) -> NodePlan:
    answer = await ask(client, rented.code(SECRET))
    assert answer.status_code == 200, answer.text
    return NodePlan.model_validate(answer.json())


async def beat(client: httpx.AsyncClient, token: str, **body: object) -> httpx.Response:
    return await client.post("/v1/attempts/heartbeat", json=body, headers=bearer(token))


async def push(client: httpx.AsyncClient, token: str) -> int:
    content = IngestBatch(events=(started(1),)).model_dump_json()
    pushed = await client.post("/v1/ingest", content=content, headers=bearer(token))
    return pushed.status_code


async def test_a_node_takes_its_attempt_beats_and_reports_the_end(
    client: httpx.AsyncClient, rented: Rented, stage: Stage, task_queue: RememberingBell
) -> None:
    plan = await taken(client, rented)
    assert (plan.run_id, plan.attempt_id, plan.attempt) == (rented.run_id, rented.attempt_id, 1)
    assert plan.ingest_url == "https://service/v1/ingest"
    assert plan.secrets == SECRETS
    assert (await beat(client, plan.attempt_token)).json() == {"action": None}
    assert await push(client, plan.attempt_token) == 200
    for _ in range(2):
        said = await client.post("/v1/attempts/end", json=END, headers=bearer(plan.attempt_token))
        assert said.status_code == 204, said.text
    run = (await client.get(f"/v1/runs/{rented.run_id}")).json()
    assert run["attempts"][0]["exit_code"] == 0
    assert rented.run_id in task_queue.rung
    with stage.database.transaction() as session:
        cluster = clusters.of_attempt(session, rented.attempt_id)
        assert cluster is not None
        assert cluster.due_at is not None
        assert cluster.due_at <= utc_now()
    assert (await beat(client, plan.attempt_token)).json() == {"action": "kill"}


async def test_what_is_secret_is_in_no_event_and_no_other_answer(
    client: httpx.AsyncClient, rented: Rented
) -> None:
    plan = await taken(client, rented)
    for path in ("", "/events", "/status"):
        answer = await client.get(f"/v1/runs/{rented.run_id}{path}")
        assert SECRETS["AWS_SECRET_ACCESS_KEY"] not in answer.text
        assert plan.attempt_token not in answer.text


async def test_a_wrong_code_gets_nothing(client: httpx.AsyncClient, rented: Rented) -> None:
    right = rented.code(SECRET)
    for wrong in (
        right.model_copy(update={"code": right.code[:-1] + "x"}),
        right.model_copy(update={"code": "hcx_ä"}),
        right.model_copy(update={"attempt_id": "att_nobody"}),
        rented.code("another secret"),
    ):
        answer = await ask(client, wrong)
        assert (answer.status_code, answer.json()["code"]) == (401, "unknown_token")
    assert (await ask(client, right)).status_code == 200


async def test_the_code_of_one_attempt_does_not_open_another(
    client: httpx.AsyncClient, rented: Rented, stage: Stage
) -> None:
    other = rent(stage.database, PROJECT, now=utc_now())
    stolen = rented.code(SECRET).model_copy(update={"attempt_id": other.attempt_id})
    assert (await ask(client, stolen)).status_code == 401


async def test_the_same_job_may_ask_again_and_only_its_newest_token_is_good(
    client: httpx.AsyncClient, rented: Rented
) -> None:
    first, second = await taken(client, rented), await taken(client, rented)
    assert first.attempt_token != second.attempt_token
    assert (await beat(client, first.attempt_token)).status_code == 401
    assert await push(client, first.attempt_token) == 401
    assert (await beat(client, second.attempt_token)).status_code == 200


async def test_a_second_job_is_refused_and_the_first_goes_on(
    client: httpx.AsyncClient, rented: Rented
) -> None:
    plan = await taken(client, rented)
    answer = await ask(client, rented.code(SECRET, OTHER_NONCE))
    assert (answer.status_code, answer.json()["code"]) == (409, "attempt_superseded")
    assert not answer.json()["retryable"]
    assert (await beat(client, plan.attempt_token)).status_code == 200


async def test_further_nodes_get_the_secrets_alone_and_only_after_the_first(
    client: httpx.AsyncClient, rented: Rented, stage: Stage
) -> None:
    rented = rent(stage.database, PROJECT, now=utc_now(), num_nodes=3)
    early = await ask(client, rented.code(SECRET, rank=1))
    assert (early.status_code, early.json()["code"]) == (409, "attempt_not_claimed")
    assert early.json()["retryable"]
    plan = await taken(client, rented)
    shared = NodePlan.model_validate((await ask(client, rented.code(SECRET, rank=1))).json())
    assert (shared.secrets, shared.attempt_token, shared.ingest_url) == (SECRETS, "", "")
    stranger = await ask(client, rented.code(SECRET, OTHER_NONCE, rank=1))
    assert stranger.json()["code"] == "attempt_superseded"
    for member, rank, status in (("a", 2, 200), ("a", 2, 200), ("b", 2, 409), ("a", 3, 409)):
        answer = await ask(client, rented.code(SECRET, rank=rank, member=member))
        assert answer.status_code == status, (member, rank)
        assert ("the-fleet-key" in answer.text) is (status == 200)
    assert (await beat(client, plan.attempt_token)).status_code == 200


async def test_an_attempt_that_is_over_is_not_given(
    client: httpx.AsyncClient, rented: Rented, stage: Stage
) -> None:
    end = AttemptEnd(reason=ReasonCode.NO_CAPACITY, message="none")
    with stage.database.transaction() as session:
        run = store.lock_run(session, rented.run_id)
        attempt = store.get_attempt(session, rented.attempt_id)
        attempts.end_attempt(session, run, attempt, end, now=utc_now())
    answer = await ask(client, rented.code(SECRET))
    assert answer.json()["code"] == "attempt_superseded"


async def test_a_node_that_cannot_reach_us_gets_no_address(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    far = rent(stage.database, PROJECT, now=utc_now(), api_reachable=False)
    assert (await taken(client, far)).ingest_url == ""


async def test_a_node_hears_that_its_run_was_cancelled(
    client: httpx.AsyncClient, rented: Rented
) -> None:
    plan = await taken(client, rented)
    assert (await client.post(f"/v1/runs/{rented.run_id}/cancel")).status_code < 300
    assert (await beat(client, plan.attempt_token)).json() == {"action": "stop"}


async def test_while_nodes_prepare_the_trainer_is_not_late(
    client: httpx.AsyncClient, rented: Rented, stage: Stage
) -> None:
    plan = await taken(client, rented)
    soon = utc_now() + timedelta(seconds=5)
    for body, is_moved in (({}, False), ({"is_preparing": True}, True)):
        with stage.database.transaction() as session:
            store.lock_run(session, rented.run_id).deadline_at = soon
        assert (await beat(client, plan.attempt_token, **body)).status_code == 200
        with stage.database.transaction() as session:
            deadline = session.get_one(Run, rented.run_id).deadline_at
            assert deadline is not None
            assert (deadline > soon) == is_moved


async def test_without_a_token_nobody_beats(client: httpx.AsyncClient, rented: Rented) -> None:
    for path, body in (("heartbeat", {}), ("end", END)):
        url = f"/v1/attempts/{path}"
        assert (await client.post(url, json=body, headers=bearer("hca_no"))).status_code == 401
