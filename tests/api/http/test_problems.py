"""Every kind of error is problem+json that says what is wrong and nothing it should not."""

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI

from api.clusters.errors import ClustersError
from api.datasets.errors import RegistryError
from api.http.middleware import MAX_BODY_BYTES_AT
from api.http.problems import CONTENT_TYPE, INTERNAL, KINDS, body_of, kind_of
from api.notices.errors import NoticeError
from api.runs.errors import RunError
from api.tables.access.identity import IdentityError
from api.tables.database import SCHEMA_REVISION, Database
from hillclimb.protocol.outcomes import DETAIL_LIMIT
from hillclimb.spec.run import MAX_ROLLOUTS
from hillclimb.stats.trajectories.errors.kinds import ToolErrorKind
from hillclimb.stats.trajectories.patterns.registry import PATTERNS, PATTERNS_VERSION
from tests.api.fixtures.story import rollout
from tests.api.http.conftest import KEY, RUNNER_TOKEN, RememberingBell, bearer
from tests.fixtures.factories import spec_body


def leaves(base: type[Exception]) -> set[type[Exception]]:
    below = {leaf for child in base.__subclasses__() for leaf in leaves(child)}
    return below or {base}


def check(response: httpx.Response, status: int, code: str) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == CONTENT_TYPE
    body: dict[str, object] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"https://hillclimb.dev/problems/{code}"
    assert body["request_id"] == response.headers["x-request-id"]
    assert response.headers["x-should-retry"] == str(body["retryable"]).lower()
    assert "Traceback" not in response.text
    return body


@pytest.mark.parametrize(
    "base", [RunError, IdentityError, RegistryError, ClustersError, NoticeError]
)
def test_every_domain_error_has_a_row(base: type[Exception]) -> None:
    for error in leaves(base):
        assert kind_of(error.__new__(error)) is not INTERNAL, error


def test_codes_are_unique_and_snake_case() -> None:
    codes = [kind.code for kind in KINDS.values()]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("_", "").islower() for code in codes)


def test_an_error_outside_the_table_is_internal() -> None:
    assert kind_of(ValueError("x")) is INTERNAL
    assert body_of(INTERNAL, "d", path="/p", request_id="r")["retryable"] is True


async def test_an_unknown_path_and_a_wrong_method(client: httpx.AsyncClient) -> None:
    check(await client.get("/v1/nothing"), 404, "not_found")
    answer = await client.delete("/v1/runs")
    check(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"{", "line 1 column 1"),
        (b"", "line 1 column 0"),
        (b'{"name": "x",\n "data": }', "line 2 column 10"),
        (b'{"name": "\xff"}', "line 1 column"),
    ],
)
async def test_broken_json_is_located(client: httpx.AsyncClient, body: bytes, where: str) -> None:
    problem = check(await client.post("/v1/runs", content=body), 400, "malformed")
    assert where in str(problem["detail"])


@pytest.mark.parametrize(
    ("sections", "pointer", "code", "part"),
    [
        ({"optimizer": {"lr_rate": 1}}, "/optimizer/lr_rate", "unknown_key", "unknown key"),
        ({"rollout": {"temprature": 1}}, "/rollout/temprature", "unknown_key", "'temperature'"),
        ({"optimizer": {"lr": -1}}, "/optimizer/lr", "greater_than", "greater than 0"),
        ({"optimizer": {"lr": "much"}}, "/optimizer/lr", "float_parsing", "number"),
        ({"rollout": {"top_p": 1}}, "/rollout/top_p", "not_available", "not available in this"),
        ({"notify": {"webhook": {}}}, "/notify/webhook", "unknown_key", "docs/webhooks.md"),
        ({"experiment": {}}, "/experiment", "unknown_key", "an object of its own"),
        ({"guards": {"hopeles": {}}}, "/guards/hopeles", "unknown_key", "did you mean 'hopeless'"),
        ({"cluster": {}}, "/cluster", "unknown_key", "a run are under backend.skypilot"),
        ({"data": {"env_keys": ["bookings"]}}, "", "value_error", "unknown environment"),
        ({"name": 5}, "/name", "string_type", "string"),
    ],
)
async def test_each_mistake_of_a_spec_is_pointed_at(
    client: httpx.AsyncClient, sections: dict[str, object], pointer: str, code: str, part: str
) -> None:
    for path in ("/v1/runs", "/v1/runs/plan"):
        answer = await client.post(path, json=spec_body(**sections))
        problem = check(answer, 422, "invalid_spec")
        (error,) = json.loads(answer.text)["errors"]
        assert (error["pointer"], error["code"]) == (pointer, code)
        assert part in error["message"]
        assert part in str(problem["detail"])


async def test_a_spec_with_a_zero_character_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/runs", json=spec_body(model={"source": "a\x00b"}))
    check(answer, 400, "malformed")


@pytest.mark.parametrize(
    ("path", "size"),
    [("/v1/runs", 1_000_001), ("/v1/runs", 10_000_000), ("/v1/ingest", 24_000_001)],
)
async def test_a_body_that_is_too_large_is_refused(
    client: httpx.AsyncClient, path: str, size: int
) -> None:
    problem = check(await client.post(path, content=b"x" * size), 413, "too_large")
    assert "at most" in str(problem["detail"])


def test_the_largest_event_has_room_in_one_push() -> None:
    """Every rollout fails with the longest cause in words, many errors and six patterns."""
    row = rollout("ticketmaster", 452425, passed=False, decoding="sampled", step=999_999)
    longest = row.model_copy(
        update={
            "detail": "x" * DETAIL_LIMIT,
            "verifier_execution_id": "exec_0123456789abcdef",
            "tool_errors": dict.fromkeys(ToolErrorKind, 99),
            "patterns": tuple(PATTERNS)[:6],
            "patterns_version": PATTERNS_VERSION,
            "first_weight_version": 999_999,
            "last_weight_version": 999_999,
        }
    )
    size = len(longest.model_dump_json()) + 1
    assert size * MAX_ROLLOUTS < MAX_BODY_BYTES_AT["/v1/ingest"]


@pytest.mark.parametrize(("path", "key"), [("/v1/runs", KEY), ("/v1/runners", RUNNER_TOKEN)])
async def test_a_body_that_hides_its_size_is_refused_too(
    client: httpx.AsyncClient, path: str, key: str
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"x" * 100_000

    check(await client.post(path, content=chunks(), headers=bearer(key)), 413, "too_large")


@pytest.mark.parametrize(
    "headers", [{"Authorization": ""}, bearer("wrong"), {"Authorization": "Basic x"}, bearer("")]
)
async def test_a_missing_or_wrong_key_is_refused(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    answer = await client.get("/v1/runs", headers=headers)
    check(answer, 401, "not_authenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_key_is_not_repeated_in_the_answer(client: httpx.AsyncClient) -> None:
    wrong = KEY + "x"
    assert wrong not in (await client.get("/v1/runs", headers=bearer(wrong))).text


@pytest.mark.parametrize(
    ("params", "pointer"),
    [({"limit": 0}, "/limit"), ({"status": "gone"}, "/status/0"), ({"created_after": "x"}, None)],
)
async def test_a_bad_parameter_is_pointed_at(
    client: httpx.AsyncClient, params: dict[str, str | int], pointer: str | None
) -> None:
    answer = await client.get("/v1/runs", params=params)
    check(answer, 422, "invalid")
    assert answer.json()["errors"][0]["pointer"] == (pointer or "/created_after")


async def test_our_own_sentence_of_a_body_stands_without_pydantics_words(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/v1/runs/run_x/budget", json={})
    problem = check(answer, 422, "invalid")
    assert problem["detail"] == "body: nothing is added: set usd or hours above 0"


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T00:00:00Z", 7]
)
async def test_a_moment_that_could_not_be_read_again_is_not_stored(
    client: httpx.AsyncClient, moment: str | int
) -> None:
    """Postgres has years that Python has not: the list of keys could not be read any more."""
    key = {"name": "ci", "scopes": ["runs:read"], "expires_at": moment}
    check(await client.post("/v1/keys", json=key), 422, "invalid")
    check(await client.put("/v1/limits", json={"since": moment}), 422, "invalid")
    for path in ("/v1/keys", "/v1/limits"):
        assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("since", "sentence"),
    [
        (
            "2999-01-01T00:00:00Z",
            "since is in the future, no spending would count until then: 2999",
        ),
        ("2026-01-01T00:00:00", "body since: Input should have timezone info"),
    ],
)
async def test_limits_count_from_no_moment_to_come_and_from_none_that_is_unclear(
    client: httpx.AsyncClient, since: str, sentence: str
) -> None:
    problem = check(await client.put("/v1/limits", json={"usd": 1, "since": since}), 422, "invalid")
    assert str(problem["detail"]).startswith(sentence)
    assert (await client.get("/v1/limits")).json()["usd"] is None


async def test_limits_are_put_back_as_they_were_read(client: httpx.AsyncClient) -> None:
    put = (await client.put("/v1/limits", json={"usd": 1})).json()
    assert (await client.put("/v1/limits", json=put)).json() == put


async def test_a_parameter_that_cannot_be_compared_is_malformed(client: httpx.AsyncClient) -> None:
    check(await client.get("/v1/runs", params={"name": "a\x00b"}), 400, "malformed")
    check(await client.get("/v1/runs/%00"), 400, "malformed")


async def test_an_unknown_run_is_named(client: httpx.AsyncClient) -> None:
    problem = check(await client.get("/v1/runs/run_none"), 404, "run_not_found")
    assert problem["detail"] == "There is no run 'run_none'."


async def test_a_bug_is_logged_under_the_request_id_and_not_shown(
    app: FastAPI, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("a secret of the service")

    app.add_api_route("/broken", broken, include_in_schema=False)
    try:
        with caplog.at_level(logging.ERROR, logger="api.http.middleware"):
            answer = await client.get("/broken", headers={"X-Request-ID": "mine-1"})
    finally:
        # The applications of all tests share their routes.
        app.router.routes.pop()
    problem = check(answer, 500, "internal")
    assert problem["request_id"] == "mine-1"
    assert "secret" not in answer.text
    assert "mine-1" in caplog.text
    assert "a secret of the service" in caplog.text


async def test_a_database_that_is_away_is_503_and_retryable(
    app: FastAPI, client: httpx.AsyncClient
) -> None:
    services = app.state.services
    away = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    app.state.services = replace(services, database=away)
    answer = await client.get("/v1/runs")
    app.state.services = services
    away.close()
    check(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "5"


async def test_health_is_alive_without_its_parts_and_ready_only_with_them(
    client: httpx.AsyncClient, task_queue: RememberingBell
) -> None:
    assert (await client.get("/v1/health")).json() == {"status": "ok"}
    ready = await client.get("/v1/health/ready")
    assert ready.json() == {
        "status": "ready",
        "database_revision": SCHEMA_REVISION,
        "warnings": [],
    }
    task_queue.is_away = True
    problem = check(await client.get("/v1/health/ready"), 503, "unavailable")
    assert problem["detail"] == "The broker does not respond."
