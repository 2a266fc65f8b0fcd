"""Project defaults over HTTP: what each one does to a submitted spec, and what it leaves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from api.settings import Settings
from api.tables.database import Database
from tests.api.fixtures.application import make_application
from tests.api.http.conftest import KEY, READ_ONLY, STRANGER, RememberingBell, bearer
from tests.fixtures.factories import spec_body

URL = "/v1/project/defaults"
SKY = {
    "type": "skypilot",
    "skypilot": {"candidates": [{"infra": "slurm/own", "accelerators": "H100:8"}]},
}
RENTS = {"backend": SKY, "experimental": True}
FLEET = {"environment": {"provider": "fleet"}, "experimental": True}
SHOP = {"url": "https://shop.example", "headers": {"X-Key": "RUN_SECRET_SHOP"}}
OPENENV = {
    "environment": {"provider": "openenv", "openenv": {"booking": SHOP}},
    "experimental": True,
}
ONLINE = {"tracking": {"wandb": {"mode": "online"}}, "experimental": True}


async def set_defaults(client: httpx.AsyncClient, **defaults: Any) -> None:
    answer = await client.put(URL, json=defaults)
    assert answer.status_code == 200, answer.text


async def store(client: httpx.AsyncClient, *names: str) -> None:
    for name in names:
        hosts = ["shop.example"] if name == "run_secret_shop" else []
        body = {"value": f"value of {name}", "hosts": hosts}
        await client.put(f"/v1/secrets/{name}", json=body)


async def plan(client: httpx.AsyncClient, **sections: Any) -> dict[str, Any]:
    answer = await client.post("/v1/runs/plan", json=spec_body(**sections))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_without_defaults_a_spec_stays_as_it_is(client: httpx.AsyncClient) -> None:
    none = (await client.get(URL)).json()
    assert (none["updated_by"], none["defaults"]["slack_channel"]) == (None, None)
    planned = await plan(client)
    assert planned["from_defaults"] == []
    assert planned["spec"]["notify"] == {"slack": None}


async def test_a_channel_is_set_where_the_spec_leaves_it_out(client: httpx.AsyncClient) -> None:
    await set_defaults(client, slack_channel="#training")
    planned = await plan(client)
    assert planned["spec"]["notify"]["slack"] == {"channel": "#training"}
    assert planned["from_defaults"] == ["notify.slack"]
    run = (await client.post("/v1/runs", json=spec_body())).json()
    assert run["spec"] == planned["spec"]
    assert run["config_hash"] == planned["config_hash"]


@pytest.mark.parametrize("slack", [None, {"channel": "#own"}])
async def test_a_key_of_the_spec_wins_and_null_does_too(
    client: httpx.AsyncClient, slack: dict[str, str] | None
) -> None:
    await set_defaults(client, slack_channel="#training")
    planned = await plan(client, notify={"slack": slack})
    assert planned["spec"]["notify"]["slack"] == slack
    assert planned["from_defaults"] == []


async def test_wandb_keys_are_set_one_by_one(client: httpx.AsyncClient) -> None:
    await set_defaults(client, wandb={"mode": "offline", "entity": "team", "project": "agents"})
    planned = await plan(client, tracking={"wandb": {"project": "mine", "entity": None}})
    wandb = planned["spec"]["tracking"]["wandb"]
    assert (wandb["mode"], wandb["entity"], wandb["project"]) == ("offline", None, "mine")
    assert planned["from_defaults"] == ["tracking.wandb.mode"]


async def test_cases_go_before_the_general_defaults_by_backend_and_modality(
    client: httpx.AsyncClient,
) -> None:
    cases = [
        {"backend": "skypilot", "wandb": {"project": "rented"}},
        {"modality": "tool_use", "wandb": {"entity": "tools"}},
        {"modality": "computer_use", "wandb": {"project": "screens", "entity": "eyes"}},
    ]
    general = {"project": "general", "entity": "team", "mode": "offline"}
    await set_defaults(client, wandb=general, cases=cases)
    here = (await plan(client))["spec"]["tracking"]["wandb"]
    assert (here["project"], here["entity"], here["mode"]) == ("general", "tools", "offline")
    rented = (await plan(client, **RENTS))["spec"]["tracking"]["wandb"]
    assert (rented["project"], rented["entity"]) == ("rented", "tools")


async def test_a_budget_limits_the_runs_that_rent(client: httpx.AsyncClient) -> None:
    await set_defaults(client, budget={"usd": 50})
    assert (await plan(client))["spec"]["budget"] is None
    rented = await plan(client, **RENTS)
    assert rented["spec"]["budget"]["usd"] == 50
    assert rented["from_defaults"] == ["budget"]
    assert (await plan(client, budget=None, **RENTS))["spec"]["budget"] is None


@pytest.mark.parametrize(
    ("sections", "variable"),
    [
        (ONLINE, "WANDB_API_KEY"),
        (FLEET, "FLEET_API_KEY"),
        (OPENENV, "RUN_SECRET_SHOP"),
    ],
)
async def test_secrets_are_mapped_only_for_runs_that_read_them(
    client: httpx.AsyncClient, sections: dict[str, Any], variable: str
) -> None:
    variables = ("WANDB_API_KEY", "FLEET_API_KEY", "RUN_SECRET_SHOP", "TINKER_API_KEY")
    names = {each: each.lower() for each in variables}
    await store(client, *names.values())
    await set_defaults(client, secrets=names)
    assert (await plan(client))["spec"]["secrets"] == {}
    planned = await plan(client, **sections)
    assert planned["spec"]["secrets"] == {variable: variable.lower()}
    assert planned["from_defaults"] == [f"secrets.{variable}"]
    refused = await plan(client, secrets={variable: None}, **sections)
    assert refused["spec"]["secrets"] == {variable: None}


async def test_a_mode_from_the_defaults_brings_its_key(client: httpx.AsyncClient) -> None:
    await store(client, "wandb-tools")
    cases = [{"modality": "tool_use", "secrets": {"WANDB_API_KEY": "wandb-tools"}}]
    await set_defaults(client, wandb={"mode": "online"}, cases=cases)
    planned = await plan(client, experimental=True)
    assert planned["spec"]["secrets"] == {"WANDB_API_KEY": "wandb-tools"}
    refused = await client.post("/v1/runs", json=spec_body())
    assert (refused.status_code, refused.json()["code"]) == (422, "defaults_misfit")
    assert (
        "defaults (tracking.wandb.mode, secrets.WANDB_API_KEY): /: tracking.wandb.mode online"
        in (refused.json()["detail"])
    )


async def test_defaults_that_name_a_missing_secret_are_refused(client: httpx.AsyncClient) -> None:
    refused = await client.put(URL, json={"secrets": {"FLEET_API_KEY": "fleet-prod"}})
    assert (refused.status_code, refused.json()["code"]) == (422, "secret_missing")
    assert "`hillclimb secrets set fleet-prod`" in refused.json()["detail"]


@pytest.mark.parametrize(
    "body", [{"slack": "x"}, {"slack_channel": "#a b"}, {"cases": [{"backend": "aws"}]}, []]
)
async def test_defaults_with_a_mistake_are_refused(client: httpx.AsyncClient, body: Any) -> None:
    assert (await client.put(URL, json=body)).status_code == 422


async def test_forks_keep_the_spec_of_their_parent(client: httpx.AsyncClient) -> None:
    run = (await client.post("/v1/runs", json=spec_body())).json()
    await set_defaults(client, slack_channel="#training")
    fork = await client.post(f"/v1/runs/{run['id']}/fork", json={"changes": {"optimizer.lr": 1e-3}})
    assert fork.json()["spec"]["notify"] == {"slack": None}


async def test_a_campaign_gets_them_in_its_cells(client: httpx.AsyncClient) -> None:
    await set_defaults(client, slack_channel="#evals")
    base = spec_body(kind="eval")
    base.pop("model", None)
    body = {
        "name": "models",
        "base": base,
        "models": [{"name": "a", "source": "builtin:tiny-qwen3-a"}],
    }
    made = await client.post("/v1/campaigns", json=body)
    assert made.status_code == 201, made.text
    runs = (await client.get("/v1/runs")).json()["data"]
    spec = (await client.get(f"/v1/runs/{runs[0]['id']}")).json()["spec"]
    assert spec["notify"]["slack"] == {"channel": "#evals"}


async def test_a_sweep_gets_them_in_its_runs(client: httpx.AsyncClient) -> None:
    await set_defaults(client, slack_channel="#sweeps")
    made = await client.post("/v1/experiments", json={"key": "v1", "title": "t"})
    assert made.status_code == 201, made.text
    swept = await client.post("/v1/experiments/v1/sweep", json={"base": spec_body()})
    assert swept.is_success, swept.text
    runs = (await client.get("/v1/runs")).json()["data"]
    spec = (await client.get(f"/v1/runs/{runs[0]['id']}")).json()["spec"]
    assert spec["notify"]["slack"] == {"channel": "#sweeps"}


async def test_only_an_admin_changes_them_and_a_stranger_has_none(
    client: httpx.AsyncClient,
) -> None:
    await set_defaults(client, slack_channel="#training")
    for key in (READ_ONLY, STRANGER):
        assert (await client.put(URL, json={}, headers=bearer(key))).status_code == 403
    stranger = await client.get(URL, headers=bearer(STRANGER))
    assert stranger.json()["defaults"]["slack_channel"] is None
    run = await client.post("/v1/runs", json=spec_body(), headers=bearer(STRANGER))
    assert run.json()["spec"]["notify"] == {"slack": None}
    reader = await client.get(URL, headers=bearer(READ_ONLY))
    assert reader.json()["updated_by"] == "key:bootstrap"


@pytest.fixture
async def channelled(
    settings: Settings, task_queue: RememberingBell, database: Database
) -> AsyncIterator[httpx.AsyncClient]:
    """The service of an operator who named a channel."""
    more = {"slack_channel": "#fleet-training-runs", "slack_bot_token": "xoxb-x"}
    made = make_application(Settings.model_validate(settings.model_dump() | more), task_queue)
    async with (
        made.router.lifespan_context(made),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(made), base_url="http://service", headers=bearer(KEY)
        ) as client,
    ):
        yield client


async def test_the_channel_of_the_operator_goes_after_the_project_and_the_spec(
    channelled: httpx.AsyncClient,
) -> None:
    planned = await plan(channelled)
    assert planned["spec"]["notify"]["slack"] == {"channel": "#fleet-training-runs"}
    assert planned["from_defaults"] == ["notify.slack"]
    assert (await plan(channelled, notify={"slack": None}))["spec"]["notify"]["slack"] is None
    operator = (await channelled.get(URL)).json()["operator"]
    assert operator == {"slack_channel": "#fleet-training-runs"}
    await set_defaults(channelled, slack_channel="#training")
    assert (await plan(channelled))["spec"]["notify"]["slack"] == {"channel": "#training"}


async def test_sweeps_and_campaigns_get_the_channel_of_the_operator_too(
    channelled: httpx.AsyncClient,
) -> None:
    assert (
        await channelled.post("/v1/experiments", json={"key": "v1", "title": "t"})
    ).status_code == 201
    body = {"base": spec_body()}
    assert (await channelled.post("/v1/experiments/v1/sweep", json=body)).is_success
    runs = (await channelled.get("/v1/runs")).json()["data"]
    spec = (await channelled.get(f"/v1/runs/{runs[0]['id']}")).json()["spec"]
    assert spec["notify"]["slack"] == {"channel": "#fleet-training-runs"}
