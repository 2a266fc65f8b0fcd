"""A key with a grant of N runs creates N, whichever way and however many requests at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.admission.experiments.conftest import BASE, body
from tests.api.clusters.cluster_story import rented
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import served, story, story_url

__all__ = ["served", "story", "story_url"]
Json = dict[str, Any]
Grant = Callable[..., Json]


@pytest.fixture
def grant(served: Served) -> Grant:
    """Create an agent key; returns the response."""

    def make(num_runs: int, **amounts: float) -> Json:
        with served.client() as admin:
            made = admin.post(
                "/v1/agent-keys", json={"name": "agent", "num_runs": num_runs, **amounts}
            )
        assert made.status_code == 201, made.text
        found: Json = made.json()
        return found

    return make


def used(client: httpx.Client) -> int:
    return int(client.get("/v1/agent-keys/self").json()["grant"]["num_runs_used"])


def num_runs(served: Served) -> int:
    with served.client() as client:
        return len(client.get("/v1/runs", params={"limit": 200}).json()["data"])


def refused(answer: httpx.Response) -> None:
    assert answer.status_code == 403, answer.text
    problem = answer.json()
    assert problem["code"] == "grant_exhausted"
    assert problem["retryable"] is False
    assert "hillclimb agent-key set" in problem["detail"]


def test_concurrent_submissions_create_as_many_runs_as_the_grant_says(
    served: Served, grant: Grant
) -> None:
    key = grant(3)["key"]

    def submit(number: int) -> httpx.Response:
        with served.client(key) as client:
            return client.post("/v1/runs", json=BASE | {"name": f"run {number}"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(submit, range(12)))
    assert sorted(each.status_code for each in answers) == [201] * 3 + [403] * 9
    assert num_runs(served) == 3
    for each in answers:
        if each.status_code == 403:
            refused(each)
    with served.client(key) as client:
        assert used(client) == 3


def test_a_repeated_request_is_not_charged_again(served: Served, grant: Grant) -> None:
    key = grant(1)["key"]
    with served.client(key) as client:
        headers = {"Idempotency-Key": "one"}
        first = client.post("/v1/runs", json=BASE, headers=headers)
        again = client.post("/v1/runs", json=BASE, headers=headers)
        assert (first.status_code, again.status_code) == (201, 201)
        assert first.json()["id"] == again.json()["id"]
        refused(client.post("/v1/runs", json=BASE))


def test_a_spec_that_is_refused_is_not_charged(served: Served, grant: Grant) -> None:
    with served.client(grant(1)["key"]) as client:
        lineage = {"resumed_from": {"run_id": "run_none", "step": 1, "attempt": 1}}
        assert client.post("/v1/runs", json=BASE | {"lineage": lineage}).status_code == 422
        assert used(client) == 0


def test_a_fork_and_a_resumed_run_are_charged_and_a_paused_run_is_not(
    served: Served, grant: Grant, story: Story
) -> None:
    ended, paused = story.running(), story.running()
    story.push(ended, story.checkpoint(ended, 1))
    story.finish(ended, 1, ReasonCode.TRAINER_CRASHED, message="because")
    with served.client() as client:
        assert client.get(f"/v1/runs/{ended}").json()["status"] in ("failed", "recovering")
        client.post(f"/v1/runs/{ended}/cancel")
        client.post(f"/v1/runs/{paused}/pause")
    story.finish(paused, 0, ReasonCode.PAUSED_BY_USER)
    with served.client(grant(2)["key"]) as client:
        assert client.post(f"/v1/runs/{paused}/resume").status_code == 200
        assert used(client) == 0
        assert client.post(f"/v1/runs/{ended}/resume").status_code == 201
        assert client.post(f"/v1/runs/{ended}/fork", json={}).status_code == 201
        assert used(client) == 2
        refused(client.post(f"/v1/runs/{ended}/fork", json={}))
        refused(client.post(f"/v1/runs/{ended}/resume"))


def test_a_sweep_larger_than_the_grant_launches_nothing(served: Served, grant: Grant) -> None:
    with served.client(grant(3)["key"]) as client:
        assert client.post("/v1/experiments", json=body()).status_code == 201
        sweep = {"base": BASE, "seeds": [0, 1, 2, 3]}
        refused(client.post("/v1/experiments/v0.2.4/sweep", json=sweep))
        assert num_runs(served) == 0
        assert used(client) == 0
        smaller = client.post("/v1/experiments/v0.2.4/sweep", json=sweep | {"seeds": [0, 1, 2]})
        assert len(smaller.json()["runs"]) == 3
        assert used(client) == 3


def test_a_campaign_larger_than_the_grant_launches_nothing(served: Served, grant: Grant) -> None:
    campaign = {
        "name": "tiny models",
        "base": {"name": "base", "data": {"env_keys": ["booking"], "eval_tasks_per_env": 30}},
        "models": [{"name": "a", "source": "builtin:tiny-qwen3-a"}],
        "decodings": [{"name": "sampled", "temperature": 1.0}],
        "repeats": 3,
    }
    with served.client(grant(2)["key"]) as client:
        refused(client.post("/v1/campaigns", json=campaign))
        assert num_runs(served) == 0
        assert client.post("/v1/campaigns", json=campaign | {"repeats": 2}).status_code == 201
        assert used(client) == 2


def test_budgets_are_extended_within_the_grant(served: Served, grant: Grant, story: Story) -> None:
    run_id = rented(story, hours=2.0, eta_s=3600.0, budget={"hours": 4.0, "usd": 90.0})
    with served.client(grant(0, extra_hours=3.0)["key"]) as client:
        path = f"/v1/runs/{run_id}/budget"
        assert client.post(path, json={"hours": 2.0}).status_code == 200
        refused(client.post(path, json={"hours": 1.5}))
        refused(client.post(path, json={"usd": 0.5}))
        own = client.get("/v1/agent-keys/self").json()["grant"]
        assert (own["extra_hours_used"], own["extra_usd_used"]) == (2.0, 0.0)


def test_a_grant_is_raised_and_a_key_revoked_by_an_admin_alone(
    served: Served, grant: Grant
) -> None:
    made = grant(0)
    with served.client(made["key"]) as agent, served.client() as admin:
        path = f"/v1/agent-keys/{made['id']}"
        for refusal in (
            agent.patch(path, json={"num_runs": 9}),
            agent.post("/v1/agent-keys", json={"name": "more", "num_runs": 9}),
            agent.get("/v1/agent-keys"),
            agent.delete(path),
        ):
            assert refusal.status_code == 403, refusal.text
            assert refusal.json()["code"] == "not_allowed"
        refused(agent.post("/v1/runs", json=BASE))
        assert admin.patch(path, json={"num_runs": 1}).json()["grant"]["num_runs"] == 1
        assert agent.post("/v1/runs", json=BASE).status_code == 201
        with served.client(served.stranger_key) as stranger:
            assert stranger.delete(path).status_code == 404
        assert admin.delete(path).json()["revoked_at"] is not None
        assert agent.get("/v1/runs").status_code == 401
        listed = admin.get("/v1/agent-keys").json()["data"]
        assert [each["id"] for each in listed] == [made["id"]]
        assert made["key"] not in str(listed)
        assert admin.get("/v1/agent-keys/self").json()["code"] == "agent_key_not_found"
