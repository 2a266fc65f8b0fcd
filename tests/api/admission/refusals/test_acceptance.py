"""Evidence over HTTP: stored by operators, read by admission, void with other versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from moto.server import ThreadedMotoServer

from api.admission.refusals.acceptance.store import present_versions
from api.settings import Settings
from api.tables import Acceptance
from api.tables.database import Database
from hillclimb.process.acceptance.targets import FACTS, Target
from tests.api.http.conftest import READ_ONLY, STRANGER, app, bearer, client, settings, task_queue
from tests.fixtures.factories import spec_body
from tests.fixtures.fake_slack import CHANNEL, TEAM, TOKEN, Failure, FakeSlack, run_fake_slack
from tests.hillclimb.blobs.servers import BUCKET, KEY, REGION, SECRET, make_client

__all__ = ["app", "client", "settings", "task_queue"]

URL = "/v1/acceptance"
ONLINE = {"tracking": {"wandb": {"mode": "online"}}}
AWAY = "https://fleet.example"


def evidence(target: Target = "wandb", **keys: Any) -> dict[str, Any]:
    observations = [
        {"name": name, "seen": "it did", "seconds": 0.1} for name in FACTS[target].checks
    ]
    return {
        "target": target,
        "subject": "https://api.wandb.ai",
        "paths": list(FACTS[target].lifts[:1]),
        "versions": present_versions(),
        "observations": observations,
    } | keys


async def record(client: httpx.AsyncClient, **keys: Any) -> dict[str, Any]:
    answer = await client.post(URL, json=evidence(**keys))
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_evidence_lifts_the_flag_until_it_is_forgotten(client: httpx.AsyncClient) -> None:
    refused = await client.post("/v1/runs", json=spec_body(**ONLINE))
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_spec")
    assert "`hillclimb accept wandb`" in refused.json()["detail"]
    stored = await record(client)
    planned = await client.post("/v1/runs/plan", json=spec_body(**ONLINE))
    (accepted,) = planned.json()["spec"]["accepted"]
    assert (accepted["path"], accepted["evidence"]) == ("wandb", stored["id"])
    run = (await client.post("/v1/runs", json=spec_body(**ONLINE))).json()
    assert run["spec"]["experimental"] is False
    assert run["spec"]["accepted"] == [accepted]
    assert (await client.delete(f"{URL}/wandb")).json()["forgotten"] == 1
    again = await client.post("/v1/runs", json=spec_body(**ONLINE))
    assert again.status_code == 422
    copied = await client.post("/v1/runs", json=run["spec"])
    assert (copied.status_code, copied.json()["code"]) == (422, "path_not_accepted")
    fork = await client.post(f"/v1/runs/{run['id']}/fork", json={"changes": {"optimizer.lr": 1e-3}})
    assert fork.json()["code"] == "path_not_accepted"


async def test_defaults_and_all_evidence_hold_for_a_submission_together(
    client: httpx.AsyncClient,
) -> None:
    subjects = ("https://api.wandb.ai", "https://wandb.example")
    stored = [await record(client, subject=subject) for subject in subjects]
    await client.put("/v1/project/defaults", json={"wandb": {"project": "climbs"}})
    stranger = await client.get("/v1/project/defaults", headers=bearer(STRANGER))
    assert stranger.json()["defaults"]["wandb"]["project"] is None
    run = (await client.post("/v1/runs", json=spec_body(**ONLINE))).json()
    assert run["spec"]["tracking"]["wandb"]["project"] == "climbs"
    assert [each["evidence"] for each in run["spec"]["accepted"]] == [s["id"] for s in stored]
    answer = await client.post("/v1/runs", json=spec_body(**ONLINE), headers=bearer(STRANGER))
    other = answer.json()["spec"]
    assert other["tracking"]["wandb"]["project"] == "hillclimb"
    assert [each["evidence"] for each in other["accepted"]] == [s["id"] for s in stored]


async def test_a_spec_gets_the_evidence_of_the_service_and_not_its_own(
    client: httpx.AsyncClient,
) -> None:
    own = [{"path": "wandb", "subject": "https://api.wandb.ai"}]
    claimed = await client.post("/v1/runs", json=spec_body(**ONLINE, accepted=own))
    assert claimed.json()["code"] == "path_not_accepted"
    plain = (await client.post("/v1/runs", json=spec_body(accepted=own))).json()
    assert plain["spec"]["accepted"] == []


async def test_evidence_of_a_path_is_written_only_into_specs_that_may_use_it(
    client: httpx.AsyncClient,
) -> None:
    await record(client)
    await record(client, target="fleet", subject=AWAY)
    assert (await client.post("/v1/runs", json=spec_body())).json()["spec"]["accepted"] == []
    environment = {"provider": "fleet", "fleet": {"base_url": AWAY}}
    run = await client.post("/v1/runs", json=spec_body(environment=environment))
    assert [each["path"] for each in run.json()["spec"]["accepted"]] == ["fleet"]
    tried = spec_body(**ONLINE, experimental=True)
    assert (await client.post("/v1/runs", json=tried)).json()["spec"]["accepted"] == []


async def test_evidence_under_other_versions_is_void_and_says_so(
    client: httpx.AsyncClient, database: Database
) -> None:
    await record(client, versions={"hillclimb": "0.0.9", "wandb": "0.1"})
    (row,) = (await client.get(f"{URL}/wandb")).json()["data"]
    assert row["void"] == f"hillclimb was 0.0.9 and is {present_versions()['hillclimb']}"
    assert (await client.post("/v1/runs", json=spec_body(**ONLINE))).status_code == 422
    (warning,) = (await client.get("/v1/health/ready")).json()["warnings"]
    assert "evidence of wandb is void: hillclimb was 0.0.9" in warning, "`hillclimb doctor` has it"
    await record(client)
    (row,) = (await client.get(URL)).json()["data"]
    assert row["void"] is None
    with database.transaction() as session:
        assert session.query(Acceptance).count() == 1, "evidence of the same subject is replaced"


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"observations": evidence()["observations"][:-1]}, "evidence of wandb has the checks key"),
        ({"paths": ["gpu"]}, "wandb is no evidence of gpu"),
        ({"versions": {"wandb": "1"}}, "versions has no `hillclimb`"),
        ({"target": "coffee"}, "'gpu', 'cluster'"),
    ],
)
async def test_evidence_that_lacks_something_is_refused(
    client: httpx.AsyncClient, keys: dict[str, Any], sentence: str
) -> None:
    answer = await client.post(URL, json=evidence() | keys)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


async def test_a_run_that_did_not_succeed_proves_nothing(client: httpx.AsyncClient) -> None:
    run = (await client.post("/v1/runs", json=spec_body())).json()["id"]
    for named in (run, "run_06dzk3m8v5q2w9x4t7r1c0n6ab"):
        answer = await client.post(URL, json=evidence("gpu", subject="NVIDIA H100", run=named))
        assert (answer.status_code, answer.json()["code"]) == (422, "acceptance_rejected")


async def test_a_kind_of_gpu_that_was_accepted_is_rented_without_the_flag(
    client: httpx.AsyncClient,
) -> None:
    machines = [
        {"infra": "lambda", "accelerators": "H100:8"},
        {"infra": "lambda", "accelerators": "A100:8"},
    ]
    backend = {"type": "skypilot", "skypilot": {"candidates": machines}}
    refused = await client.post("/v1/runs/plan", json=spec_body(backend=backend))
    assert "`hillclimb accept gpu`" in refused.json()["detail"]
    await record(client, target="gpu", subject="NVIDIA H100 80GB HBM3")
    planned = (await client.post("/v1/runs/plan", json=spec_body(backend=backend))).json()
    reasons = [each["why_not"] for each in planned["hardware"]["candidates"]]
    assert "vLLM was on a GPU" not in str(reasons[0])
    assert "vLLM was on a GPU" in str(reasons[1])


async def test_only_operators_store_and_forget_and_the_audit_log_has_it(
    client: httpx.AsyncClient,
) -> None:
    for key in (READ_ONLY, STRANGER):
        refused = await client.post(URL, json=evidence(), headers=bearer(key))
        assert refused.status_code == 403
        assert (await client.delete(f"{URL}/wandb", headers=bearer(key))).status_code == 403
        assert (await client.get(URL, headers=bearer(key))).status_code == 200
    await record(client)
    (seen,) = (await client.get(URL, headers=bearer(READ_ONLY))).json()["data"]
    assert (seen["recorded_by"], seen["run"]) == ("an operator", None)
    assert (await client.get(URL)).json()["data"][0]["recorded_by"].startswith("key:")
    await client.delete(f"{URL}/wandb")
    rows = (await client.get("/v1/audit")).json()["data"]
    ours = [row for row in rows if "/v1/acceptance" in row["route"]]
    changes = [change["action"] for row in ours for change in row["changes"]]
    assert sorted(changes) == ["created", "deleted"]


async def test_the_services_bucket_is_checked_and_recorded_without_its_settings(
    client: httpx.AsyncClient, app: FastAPI, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    make_client(address).create_bucket(Bucket=BUCKET)
    url = f"s3://{BUCKET}/runs?endpoint_url={address}&region={REGION}"
    own = settings.model_copy(update={"blobs_url": url})
    app.state.services = dataclasses.replace(app.state.services, settings=own)
    try:
        answer = (await client.post(f"{URL}/s3/checks", json={})).json()
    finally:
        server.stop()
    assert [each["name"] for each in answer["observations"]] == list(FACTS["s3"].checks)
    stored = answer["acceptance"]
    assert (stored["subject"], stored["paths"]) == (f"s3://{BUCKET}/runs at {host}:{port}", [])
    assert stored["versions"]["botocore"]


@pytest.fixture
def slack(app: FastAPI, settings: Settings) -> Iterator[FakeSlack]:
    with run_fake_slack() as fake:
        own = {"slack_bot_token": TOKEN, "slack_api_base_url": fake.base_url}
        changed = Settings.model_validate(settings.model_dump() | own)
        app.state.services = dataclasses.replace(app.state.services, settings=changed)
        yield fake


async def test_the_services_bot_posts_changes_and_deletes(
    client: httpx.AsyncClient, slack: FakeSlack
) -> None:
    answer = (await client.post(f"{URL}/slack/checks", json={"channel": "#training"})).json()
    assert [each["passed"] for each in answer["observations"]] == [True] * 4
    assert TEAM in answer["acceptance"]["subject"]
    assert CHANNEL in answer["observations"][1]["seen"]
    assert (len(slack.posts), slack.shown) == (1, {})
    assert TOKEN not in str(answer)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("not_in_channel", "invite the bot"),
        ("channel_not_found", "name a channel of this workspace"),
        ("missing_scope", "bot scopes of docs/slack.md"),
        ("something_new", "look the code up"),
    ],
)
async def test_slacks_refusals_name_the_remedy_and_store_nothing(
    client: httpx.AsyncClient, slack: FakeSlack, code: str, remedy: str
) -> None:
    slack.failures.append(Failure(error=code))
    answer = (await client.post(f"{URL}/slack/checks", json={"channel": "#training"})).json()
    assert remedy in answer["observations"][-1]["remedy"]
    assert answer["acceptance"] is None
    assert (await client.get(URL)).json()["data"] == []


async def test_a_wrong_token_of_slack_is_said_to_be_wrong(
    client: httpx.AsyncClient, app: FastAPI, slack: FakeSlack
) -> None:
    del slack
    services = app.state.services
    wrong = services.settings.model_dump() | {"slack_bot_token": "xoxb-another"}
    settings = Settings.model_validate(wrong)
    app.state.services = dataclasses.replace(services, settings=settings)
    answer = (await client.post(f"{URL}/slack/checks", json={"channel": "#training"})).json()
    (only,) = answer["observations"]
    assert (only["name"], only["passed"]) == ("key", False)
    assert "set SLACK_BOT_TOKEN" in only["remedy"]
    assert "xoxb-another" not in str(answer)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("s3", "set HILLCLIMB_BLOBS_URL to s3://BUCKET/PREFIX"),
        ("slack", "has no SLACK_BOT_TOKEN"),
        ("gpu", "run `hillclimb accept gpu` where its keys are"),
    ],
)
async def test_what_the_service_cannot_check_it_says(
    client: httpx.AsyncClient, target: str, sentence: str
) -> None:
    answer = await client.post(f"{URL}/{target}/checks", json={})
    assert (answer.status_code, answer.json()["code"]) == (422, "checks_misfit")
    assert sentence in answer.json()["detail"]
