"""Wrong keys: limits by address that lock nobody else out, and what the audit log gets of them."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest
from fastapi import FastAPI

from api.http.requests.limits.rates import Rates
from api.http.requests.limits.wrong_keys import (
    PER_PREFIX,
    PREFIXES_TTL_S,
    RECORD_EVERY_S,
    WrongKeys,
    address_of,
)
from api.tables.access.errors import RateExceeded
from api.tables.database import Database
from tests.api.fixtures.stage import Stage
from tests.api.http.access.conftest import Caller, Cast, cast, make_key
from tests.api.http.conftest import KEY, bearer

__all__ = ["cast"]
LIMIT = 5


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(app: FastAPI) -> Clock:
    made = Clock()
    wrong_keys = WrongKeys(per_minute=LIMIT, clock=made)
    app.state.entrance = type(app.state.entrance)(
        database=app.state.services.database, wrong_keys=wrong_keys
    )
    return made


def guess(number: int) -> str:
    return f"hc_{number:09x}" + "f" * 52


async def try_keys(http: httpx.AsyncClient, keys: Sequence[str]) -> list[int]:
    answers = [await http.get("/v1/whoami", headers=bearer(key)) for key in keys]
    return [answer.status_code for answer in answers]


async def test_an_address_that_guesses_waits_and_everybody_else_behind_it_goes_on(
    cast: Cast, database: Database, clock: Clock
) -> None:
    known, http, fresh = cast.of("viewer"), cast.http, make_key(database, ())
    assert (await known("GET", "/v1/whoami")).status_code == 200
    assert await try_keys(http, [guess(n) for n in range(LIMIT)]) == [401] * LIMIT
    refused = await http.get("/v1/whoami", headers=bearer(guess(LIMIT)))
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_exceeded")
    assert int(refused.headers["Retry-After"]) == 60 / LIMIT
    assert "wrong keys came from this address" in refused.json()["detail"]
    # A key that was right before, and one that nobody has seen yet.
    assert (await known("GET", "/v1/whoami")).status_code == 200
    assert await try_keys(http, [fresh, fresh]) == [403, 403]
    assert await try_keys(http, [guess(LIMIT)]) == [429]
    clock.now += 60 / LIMIT
    assert await try_keys(http, [guess(LIMIT), guess(LIMIT)]) == [401, 429]


async def test_a_key_made_during_the_attack_is_looked_at_within_seconds(
    cast: Cast, database: Database, clock: Clock
) -> None:
    await try_keys(cast.http, [guess(n) for n in range(LIMIT + 1)])
    fresh = make_key(database, ())
    assert await try_keys(cast.http, [fresh]) == [429]
    clock.now += PREFIXES_TTL_S + 0.1
    assert await try_keys(cast.http, [fresh]) == [403]


async def test_who_knows_the_first_characters_of_a_key_gets_few_guesses_at_the_rest(
    cast: Cast, clock: Clock
) -> None:
    viewer = cast.of("viewer")
    await try_keys(cast.http, [guess(n) for n in range(LIMIT + 1)])
    close = [KEY[:12] + f"{number:052x}" for number in range(PER_PREFIX + 3)]
    assert await try_keys(cast.http, close) == [401] * PER_PREFIX + [429] * 3
    assert await try_keys(cast.http, [viewer.secret]) == [200]


async def test_wrong_tokens_of_attempts_stop_no_key_and_a_right_one_has_a_rate(
    cast: Cast, app: FastAPI, stage: Stage, clock: Clock
) -> None:
    async def send(token: str) -> int:
        answer = await cast.http.post("/v1/ingest", json={}, headers=bearer(token))
        return answer.status_code

    _, _, plan = stage.running()
    token = plan.attempt_token
    app.state.rates = Rates(per_minute=12, clock=clock)
    assert [await send(token) for _ in range(3)] == [422, 422, 429]
    assert [await send(f"hca_{n}") for n in range(LIMIT + 1)] == [401] * LIMIT + [429]
    assert await send(token) == 429
    clock.now += 5
    assert await send(token) == 422
    assert await try_keys(cast.http, [guess(1)]) == [401]


async def test_wrong_sign_ins_wait_too_and_a_link_that_was_minted_does_not(
    cast: Cast, clock: Clock
) -> None:
    http, viewer = cast.http, cast.of("viewer")
    forms = [{"key": guess(n), "next": "/"} for n in range(LIMIT + 1)]
    answers = [await http.post("/login", data=form) for form in forms]
    assert [each.status_code for each in answers] == [401] * LIMIT + [429]
    assert int(answers[-1].headers["Retry-After"]) >= 1
    assert "wait" in answers[-1].text
    assert "content-security-policy" in answers[-1].headers
    made_up = [await http.get(f"/login?code=made-up-{n}") for n in range(LIMIT + 1)]
    assert [each.status_code for each in made_up] == [401] * LIMIT + [429]
    assert (await http.post("/login", data={"key": viewer.secret})).status_code == 303
    code = (await viewer("POST", "/v1/session-codes")).json()["code"]
    assert (await http.get(f"/login?code={code}")).status_code == 200
    assert (await http.get(f"/login?code={code[:-1]}!")).status_code == 429


async def refusals(admin: Caller) -> list[dict[str, object]]:
    page = await admin("GET", "/v1/audit", params={"actor": "address:127.0.0.1"})
    assert page.status_code == 200, page.text
    return [each | each["changes"][0]["after"] for each in page.json()["data"]]


async def test_refused_keys_are_recorded_with_their_address_in_the_project_they_are_about(
    cast: Cast, clock: Clock
) -> None:
    admin = cast.of("admin")
    made = (await admin("POST", "/v1/keys", json={"name": "tv", "scopes": ["runs:read"]})).json()
    await admin("DELETE", f"/v1/keys/{made['id']}")
    await try_keys(cast.http, [made["secret"]] * 3)
    (record,) = await refusals(admin)
    assert (record["target"], record["why"], record["times"]) == (
        made["id"], "The API key was revoked.", 1,
    )  # fmt: skip
    assert record["route"] == "GET /v1/whoami"
    assert made["secret"] not in str(record)
    clock.now += RECORD_EVERY_S
    await try_keys(cast.http, [made["secret"]])
    newest, _ = await refusals(admin)
    assert newest["times"] == 3
    other = await cast.stranger("admin")("GET", "/v1/audit")
    assert other.json()["data"] == []


async def test_guesses_are_recorded_once_per_address_for_the_operator(
    cast: Cast, clock: Clock
) -> None:
    await try_keys(cast.http, [guess(n) for n in range(4)])
    (record,) = await refusals(cast.with_secret(KEY))
    assert (record["target"], record["why"]) == (None, "The API key is not valid.")


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    assert address_of(("2001:db8::1", 1)) == address_of(("2001:db8::ffff:2", 2))
    assert address_of(("2001:db8:0:1::1", 1)) != address_of(("2001:db8::1", 1))
    assert address_of(("::ffff:192.0.2.1", 1)) != address_of(("::ffff:192.0.2.2", 1))
    assert address_of(("192.0.2.1", 1)) == "192.0.2.1"
    assert address_of(None) == ""


def test_memory_of_guesses_is_bounded_and_holds_no_key() -> None:
    wrong_keys = WrongKeys(per_minute=1)
    for number in range(20_000):
        wrong_keys.wrong(f"192.0.2.{number}", guess(number))
        wrong_keys.right(guess(number))
        wrong_keys.number_to_record(guess(number)[:12])
    sizes = [len(wrong_keys._known), len(wrong_keys._refusals)]
    assert sizes == [10_000, 10_000]
    assert guess(19_999) not in wrong_keys._known
    with pytest.raises(RateExceeded):
        wrong_keys.check("192.0.2.19999", "another")
