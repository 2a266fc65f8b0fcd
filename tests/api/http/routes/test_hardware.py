"""What a plan says of machines, and what is refused because none of them will do."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.clusters import quotes
from api.runs.deadlines import QUOTE_RETRY
from api.settings import Settings
from api.tables.database import Database
from hillclimb.hardware.offers import Offer
from tests.api.http.conftest import KEY, READ_ONLY, RememberingBell, bearer
from tests.fixtures.factories import spec_body
from tests.hillclimb.hardware.rented import QWEN3_8B, YARN

LAMBDA = {"infra": "lambda", "accelerators": "H100:8"}
RUNPOD = {"infra": "runpod", "accelerators": "H100:8"}


def body(*candidates: dict[str, Any], num_nodes: int = 1, **sections: Any) -> dict[str, Any]:
    skypilot = {"candidates": list(candidates), "num_nodes": num_nodes, "max_hours": 10}
    machines = {"backend": {"type": "skypilot", "skypilot": skypilot}, "experimental": True}
    return spec_body(**(machines | sections))


def too_large() -> dict[str, Any]:
    """Qwen3-8B whole at 65k, sharing four H100 with its engines."""
    return body(
        {"infra": "lambda", "accelerators": "H100:4"},
        model={"source": QWEN3_8B, "rope": YARN},
        rollout={"max_sequence_length": 65_536, "max_input_length": 48_000},
        learner={
            "policy_dtype": "bfloat16",
            "activation_checkpointing": True,
            "max_micro_tokens": 65_536,
        },
        engine={
            "type": "vllm",
            "dtype": "bfloat16",
            "weight_transport": "ipc",
            "data_parallel_size": 4,
            "gpu_memory_utilization": 0.7,
        },
        placement={"type": "ray", "learner_ranks": 4},
    )


def answer(database: Database, *usd: float, ago: timedelta = timedelta(0)) -> int:
    """The worker's part: ask for what is wanted and write down these prices of one node."""
    now = datetime.now(UTC) - ago
    with database.transaction() as session:
        due = quotes.claim(session, now=now + ago, limit=10)
        for number, key in enumerate(due):
            offers = [
                Offer(candidate=number, infra="lambda/us-west-1", sku="gpu_8x", hourly_usd=each)
                for each in usd
            ]
            quotes.record(session, key, offers, now=now)
    return len(due)


async def planned(client: httpx.AsyncClient, spec: dict[str, Any]) -> dict[str, Any]:
    got = await client.post("/v1/runs/plan", json=spec)
    assert got.status_code == 200, got.text
    hardware: dict[str, Any] = got.json()["hardware"]
    return hardware


async def test_a_plan_says_which_machines_will_do_and_why(client: httpx.AsyncClient) -> None:
    planned = (await client.post("/v1/runs/plan", json=body(RUNPOD, LAMBDA, num_nodes=2))).json()
    first, second = planned["hardware"]["candidates"]
    assert first["why_not"].startswith("runpod supports no clusters of several nodes")
    assert second["why_not"] is None
    assert second["estimate"]["fits"] is True
    assert any(line.startswith("model: 853.1e3 parameters") for line in second["estimate"]["lines"])
    assert any("H100:8 on runpod is left out" in each for each in planned["warnings"])
    assert second["estimate"]["busy_share"] is None, "no GPU is what a tiny model waits for"
    assert any("16 GPUs are rented" in each for each in planned["warnings"])


async def test_a_plan_says_how_busy_the_gpus_of_a_large_model_are(
    client: httpx.AsyncClient,
) -> None:
    spec = too_large()
    spec["backend"]["skypilot"]["candidates"] = [LAMBDA]
    spec["engine"] |= {"weight_transport": "nccl", "data_parallel_size": 2}
    spec["optimizer"] = {"lr": 1e-6}
    spec["placement"]["learner_ranks"] = 6
    found = (await planned(client, spec))["candidates"][0]["estimate"]
    assert 0.1 < found["busy_share"] < 0.9, found
    assert f"GPUs compute for {found['busy_share']:.0%} of a step, on paper" in found["lines"][-1]


async def test_a_plan_says_who_takes_from_all_that_they_end_themselves(
    client: httpx.AsyncClient,
) -> None:
    prime = LAMBDA | {"infra": "primeintellect"}

    async def told(*candidates: dict[str, Any]) -> list[str]:
        planned = (await client.post("/v1/runs/plan", json=body(*candidates))).json()
        return [each for each in planned["warnings"] if "by itself" in each]

    assert await told(LAMBDA, RUNPOD) == []
    assert await told(prime) == [
        "primeintellect does not terminate idle clusters by itself. This service terminates every"
        " cluster; while it is down, nobody does."
    ]
    (mixed,) = await told(LAMBDA, prime, RUNPOD)
    assert "neither do H100:8 on lambda, H100:8 on runpod" in mixed
    assert "Without primeintellect in the list they terminate after 30 idle" in mixed


async def test_prices_are_asked_for_by_the_first_plan_and_known_to_the_next(
    client: httpx.AsyncClient, database: Database
) -> None:
    first = await planned(client, body(LAMBDA, num_nodes=2))
    assert (first["hourly_usd"], first["longest_usd"]) == (None, None)
    assert first["prices"] == {
        "as_of": None,
        "is_awaited": True,
        "summary": "Prices are being fetched: plan again in a few seconds.",
    }
    assert answer(database, 23.92, 31.92) == 1
    known = await planned(client, body(LAMBDA, num_nodes=2))
    assert known["hourly_usd"] == {"low": 47.84, "high": 63.84}
    assert known["max_hours"] == 10
    assert known["longest_usd"] == {"low": pytest.approx(478.4), "high": pytest.approx(638.4)}
    assert known["prices"]["summary"] == "Prices by the clouds' catalogs, just now."
    assert answer(database, 1.0) == 0


async def test_old_prices_are_shown_and_asked_for_again(
    client: httpx.AsyncClient, database: Database
) -> None:
    await planned(client, body(LAMBDA))
    answer(database, 23.92, ago=timedelta(hours=3))
    old = await planned(client, body(LAMBDA))
    assert old["hourly_usd"] == {"low": 23.92, "high": 23.92}
    assert old["prices"]["is_awaited"] is True
    assert "3 h ago" in old["prices"]["summary"]
    assert answer(database, 25.0) == 1
    assert (await planned(client, body(LAMBDA)))["hourly_usd"] == {"low": 25.0, "high": 25.0}


async def test_clouds_that_do_not_answer_are_said_and_asked_again_after_a_pause(
    client: httpx.AsyncClient, database: Database
) -> None:
    await planned(client, body(LAMBDA))
    now = datetime.now(UTC)
    with database.transaction() as session:
        due = quotes.claim(session, now=now, limit=10)
        assert quotes.claim(session, now=now, limit=10) == {}
        quotes.fail(session, due, "SkyPilot's API server: refused", now=now)
    told = (await planned(client, body(LAMBDA)))["prices"]["summary"]
    assert told.startswith("Prices are unknown: SkyPilot's API server: refused.")
    with database.transaction() as session:
        assert not quotes.is_any_due(session, now=now)
        assert quotes.is_any_due(session, now=now + QUOTE_RETRY * 1.1)


async def test_machines_that_all_cost_too_much_are_refused_once_prices_are_known(
    client: httpx.AsyncClient, database: Database
) -> None:
    dear = body(LAMBDA | {"max_hourly_usd": 20})
    assert (await client.post("/v1/runs", json=dear)).status_code == 201
    answer(database, 23.92)
    for path in ("/v1/runs", "/v1/runs/plan"):
        refused = await client.post(path, json=dear)
        assert refused.status_code == 422
        assert "it costs 23.92 USD an hour at least" in refused.json()["detail"]


async def test_a_misspelt_gpu_is_warned_of_and_refused_once_the_catalog_was_read(
    client: httpx.AsyncClient, database: Database
) -> None:
    spec = body({"infra": "lambda", "accelerators": "H10O:8"})
    told = (await client.post("/v1/runs/plan", json=spec)).json()["warnings"]
    assert any("did you mean H100?" in each for each in told)
    answer(database)
    refused = await client.post("/v1/runs", json=spec)
    assert refused.status_code == 422
    assert "the catalog of lambda lists no H10O:8" in refused.json()["detail"]
    assert "did you mean H100:8?" in refused.json()["detail"]


async def test_a_catalog_that_is_silent_of_all_refuses_nothing(
    client: httpx.AsyncClient, database: Database
) -> None:
    await planned(client, body(LAMBDA))
    answer(database)
    assert (await planned(client, body(LAMBDA)))["candidates"][0]["why_not"] is None


async def test_a_run_that_rents_nothing_has_no_hardware(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/runs/plan", json=spec_body())).json()["hardware"] is None


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/plan"])
async def test_what_cannot_fit_is_refused_with_the_arithmetic(
    client: httpx.AsyncClient, path: str
) -> None:
    refused = await client.post(path, json=too_large())
    assert (refused.status_code, refused.json()["code"]) == (422, "no_eligible_hardware")
    detail = refused.json()["detail"]
    assert "a rank of the learner needs" in detail
    assert "16 B x 8.191e9 trained parameters / 4 ranks" in detail
    assert "It would fit with engines and learner on separate GPUs" in detail
    assert (await client.get("/v1/runs")).json()["data"] == []


async def test_a_submitted_run_keeps_what_was_left_out_as_warnings(
    client: httpx.AsyncClient,
) -> None:
    run = (await client.post("/v1/runs", json=body(RUNPOD, LAMBDA, num_nodes=2))).json()
    events = (await client.get(f"/v1/runs/{run['id']}/events")).json()["data"]
    codes = [event["data"]["code"] for event in events if event["type"] == "run.warning"]
    assert codes == ["hardware", "hardware"]


async def test_presets_are_listed_and_got_by_name(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/presets")).json()["data"]
    assert "qwen3-8b-8xh100" in [each["name"] for each in listed]
    reader = bearer(READ_ONLY)
    one = (await client.get("/v1/presets/qwen3-8b-8xh100", headers=reader)).json()
    assert one["spec"]["placement"]["learner_ranks"] == 3
    assert one["text"].startswith("# Qwen3-8B at 65k context")
    missing = await client.get("/v1/presets/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "preset_not_found")
    assert "take one of fleet-tinker-grpo" in missing.json()["detail"]


async def test_a_preset_is_submitted_as_it_is_with_tasks_of_ones_own(
    client: httpx.AsyncClient, app: FastAPI
) -> None:
    spec = (await client.get("/v1/presets/qwen3-8b-8xh100")).json()["spec"]
    keyless = (await client.post("/v1/runs", json=spec)).json()
    assert keyless["code"] == "no_eligible_hardware"
    assert "add its name to HILLCLIMB_NODE_SECRETS (there: nothing)" in keyless["detail"]
    given = {"FLEET_API_KEY": "fleet-key"}
    app.state.services = dataclasses.replace(app.state.services, node_secrets=given)
    unregistered = await client.post("/v1/runs", json=spec)
    assert unregistered.json()["code"] == "dataset_unusable"
    own = spec | {
        "data": {"env_keys": ["booking"]},
        "environment": spec["environment"] | {"provider": "minifleet"},
    }
    created = await client.post("/v1/runs", json=own)
    assert created.status_code == 201, created.text


async def test_a_service_that_rents_nothing_refuses_to_queue_what_needs_a_cluster(
    settings: Settings, task_queue: RememberingBell
) -> None:
    app = create_app(settings.model_copy(update={"clouds": ""}), task_queue)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=transport,
            base_url="http://service",
            headers={"Authorization": f"Bearer {KEY}"},
        ) as client,
    ):
        refused = await client.post("/v1/runs", json=body(LAMBDA))
        assert refused.status_code == 422
        assert "hillclimb up --with-sky" in refused.json()["detail"]
        planned = (await client.post("/v1/runs/plan", json=body(LAMBDA))).json()
        assert any("this service rents no machines" in each for each in planned["warnings"])
        assert (await client.get("/v1/runs")).json()["data"] == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"node_api_url": "http://127.0.0.1:8710"}, "HILLCLIMB_NODE_API_URL"),
        ({"node_blobs_url": "/var/lib/blobs"}, "HILLCLIMB_NODE_BLOBS_URL"),
    ],
)
async def test_machines_that_would_be_cut_off_are_not_rented(
    settings: Settings, task_queue: RememberingBell, changes: dict[str, str], says: str
) -> None:
    app = create_app(settings.model_copy(update=changes), task_queue)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://service",
            headers={"Authorization": f"Bearer {KEY}"},
        ) as client,
    ):
        refused = await client.post("/v1/runs", json=body(LAMBDA))
        assert refused.status_code == 422
        assert says in refused.json()["detail"]
        planned = (await client.post("/v1/runs/plan", json=body(LAMBDA))).json()
        (told,) = (each for each in planned["warnings"] if "would reject the run" in each)
        assert refused.json()["detail"].removesuffix(".") in told
        own = await client.post("/v1/runs", json=body(LAMBDA | {"infra": "slurm/own"}))
        assert own.status_code == 201, own.text
        planned = await client.post("/v1/runs/plan", json=body(LAMBDA | {"infra": "slurm/own"}))
        assert not any("would reject the run" in each for each in planned.json()["warnings"])


@pytest.mark.parametrize(
    ("url", "status"), [("http://api.example:8710", 422), ("http://10.1.2.3:8710", 201)]
)
async def test_nodes_are_not_told_their_secrets_where_others_read_along(
    settings: Settings, task_queue: RememberingBell, url: str, status: int
) -> None:
    app = create_app(settings.model_copy(update={"node_api_url": url}), task_queue)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://service",
            headers={"Authorization": f"Bearer {KEY}"},
        ) as client,
    ):
        for candidate in (LAMBDA, LAMBDA | {"infra": "slurm/own"}):
            answer = await client.post("/v1/runs", json=body(candidate))
            assert answer.status_code == status, answer.text
            if status == 422:
                assert f"secrets unencrypted over {url}" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"candidates": [LAMBDA | {"image": "docker:evil/trainer:1"}]}, "docker:evil/trainer:1"),
        ({"candidates": [LAMBDA, LAMBDA | {"image": "docker:evil/x:1"}]}, "docker:evil/x:1"),
        (
            {
                "candidates": [{"infra": "slurm/lab", "accelerators": "H100:8"}],
                "trainer": {"type": "prebuilt", "python": "/home/evil/bin/python"},
            },
            "/home/evil/bin/python",
        ),
    ],
)
async def test_code_that_the_operator_has_not_allowed_gets_no_secrets(
    client: httpx.AsyncClient, app: FastAPI, changes: dict[str, Any], code: str
) -> None:
    spec = body(LAMBDA)
    spec["backend"]["skypilot"] |= changes
    refused = await client.post("/v1/runs", json=spec)
    assert (refused.status_code, refused.json()["code"]) == (422, "no_eligible_hardware")
    assert f"{code} would run with the operator's secrets" in refused.json()["detail"]
    assert "this service allows only its own wheel" in refused.json()["detail"]
    services = app.state.services
    allowing = services.settings.model_copy(update={"node_images": f"docker:a/b:c {code}"})
    app.state.services = dataclasses.replace(services, settings=allowing)
    allowed = await client.post("/v1/runs", json=spec)
    assert allowed.status_code == 201, allowed.text
