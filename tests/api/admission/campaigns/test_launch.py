"""A campaign's cells: launched once, shared, retried, cancelled."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import func, select

from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.admission.campaigns.conftest import Campaign, Json, body, evaluate, fail
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec


def num_runs(story: Story) -> int:
    with story.database.transaction() as session:
        return session.scalar(select(func.count()).select_from(Run)) or 0


def states(campaign: Json) -> list[str]:
    return [cell["state"] for cell in campaign["cells"]]


def test_every_model_dataset_and_repeat_is_a_cell_with_a_run(
    campaign: Campaign, story: Story
) -> None:
    created = campaign()
    places = [(cell["model"], cell["repeat"]) for cell in created["cells"]]
    assert places == [(model, repeat) for model in "ab" for repeat in (1, 2, 3)]
    assert states(created) == ["accepted"] * 6
    assert len({cell["run_id"] for cell in created["cells"]}) == num_runs(story) == 6


def test_repeats_differ_in_the_sampling_seed_and_leave_greedy_to_the_first(
    campaign: Campaign, story: Story
) -> None:
    runs = [cell["run_id"] for cell in campaign()["cells"][:3]]
    with story.database.transaction() as session:
        specs = [session.get_one(Run, run_id).spec for run_id in runs]
    assert [each["schedule"]["seed"] for each in specs] == [0, 1, 2]
    assert [each["data"]["seed"] for each in specs] == [0, 0, 0]
    names = [[each["name"] for each in spec["eval"]["decodings"]] for spec in specs]
    assert names == [["sampled", "greedy"], ["sampled"], ["sampled"]]
    assert {each["kind"] for each in specs} == {"eval"}


def test_a_campaign_of_greedy_decodings_alone_is_evaluated_once(campaign: Campaign) -> None:
    created = campaign(decodings=[{"name": "greedy", "temperature": 0.0}])
    assert [cell["repeat"] for cell in created["cells"]] == [1, 1]


def test_equal_cells_of_two_campaigns_share_their_run(campaign: Campaign, story: Story) -> None:
    first = campaign()
    third = {
        "name": "c",
        "source": "builtin:tiny-qwen3-a",
    }
    second = campaign(name="more", models=[body()["models"][1], third])
    shared = {cell["run_id"] for cell in first["cells"]}
    assert {cell["run_id"] for cell in second["cells"]} == shared
    assert {cell["num_campaigns"] for cell in second["cells"]} == {2}
    assert num_runs(story) == 6


def test_campaigns_that_are_created_at_once_launch_nothing_twice(
    served: Served, story: Story
) -> None:
    def create() -> None:
        with served.client() as client:
            assert client.post("/v1/campaigns", json=body()).status_code == 201

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert num_runs(story) == 6


def test_a_repeated_request_returns_the_same_campaign(served: Served, story: Story) -> None:
    key = {"Idempotency-Key": "once"}
    with served.client() as client:
        first = client.post("/v1/campaigns", json=body(), headers=key)
        again = client.post("/v1/campaigns", json=body(), headers=key)
        other = client.post("/v1/campaigns", json=body(name="x"), headers=key)
        listed = client.get("/v1/campaigns").json()
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert other.json()["code"] == "idempotency_key_reused"
    assert [each["id"] for each in listed["data"]] == [first.json()["id"]]


def test_a_refused_cell_is_blocked_with_the_reason_and_the_others_go_on(
    campaign: Campaign, served: Served
) -> None:
    created = campaign(datasets=["nowhere@3"], repeats=1)
    assert states(created) == ["blocked", "blocked"]
    assert "nowhere" in created["cells"][0]["why"]
    with served.client() as client:
        again = client.post(f"/v1/campaigns/{created['id']}/retry").json()
    assert states(again) == ["blocked", "blocked"]


def test_a_cell_that_failed_by_chance_is_retried_and_one_that_failed_by_its_spec_is_not(
    campaign: Campaign, story: Story, served: Served
) -> None:
    created = campaign(repeats=2)
    done, broken, lost = (cell["run_id"] for cell in created["cells"][:3])
    evaluate(story, done, 0.5)
    fail(story, broken, ReasonCode.SPEC_REJECTED)
    fail(story, lost, ReasonCode.CHECKPOINT_UNREADABLE)
    with served.client() as client:
        before = client.get(f"/v1/campaigns/{created['id']}").json()
        after = client.post(f"/v1/campaigns/{created['id']}/retry").json()
        again = client.post(f"/v1/campaigns/{created['id']}/retry").json()
    assert states(before) == ["done", "blocked", "retryable", "accepted"]
    assert before["cells"][2]["why"] == "because"
    assert states(after) == ["done", "blocked", "accepted", "accepted"]
    assert after["cells"][2]["run_id"] != lost
    assert after["cells"][2]["num_launches"] == 2
    assert again["cells"] == after["cells"]
    assert num_runs(story) == 5


def test_cancelling_leaves_what_another_campaign_shares(campaign: Campaign, served: Served) -> None:
    first = campaign()
    second = campaign(name="b alone", models=body()["models"][1:])
    with served.client() as client:
        cancelled = client.post(f"/v1/campaigns/{first['id']}/cancel").json()
        other = client.get(f"/v1/campaigns/{second['id']}").json()
    assert states(cancelled) == ["retryable"] * 3 + ["accepted"] * 3
    assert states(other) == ["accepted"] * 3


def test_a_checkpoint_is_evaluated_with_the_model_settings_of_its_run(
    campaign: Campaign, story: Story
) -> None:
    trained = story.running(spec().model_copy(update={"name": "trained"}))
    story.push(trained, story.checkpoint(trained, 20))
    model = {"name": "trained", "checkpoint": f"{trained}@20"}
    created = campaign(models=[*body()["models"][:1], model], repeats=1)
    with story.database.transaction() as session:
        stored = session.get_one(Run, created["cells"][1]["run_id"]).spec
    assert stored["lineage"]["resumed_from"] == {"run_id": trained, "step": 20, "attempt": 1}
    assert stored["model"] == spec().model_dump(mode="json")["model"]
    assert stored["data"]["env_keys"] == ["booking", "github"]


@pytest.mark.parametrize(
    ("changes", "status", "part"),
    [
        ({"models": []}, 422, "models"),
        ({"models": [{"name": "a"}]}, 422, "needs either a source or a checkpoint"),
        ({"models": body()["models"] * 2}, 422, "'a' twice"),
        ({"models": [{"name": "a", "checkpoint": "run_06dzk3m8v5q2w9x4t7r1c0n6ab@3"}]}, 404, "run"),
        ({"datasets": ["name-without-version"]}, 422, "datasets"),
        ({"repeats": 0}, 422, "repeats"),
        ({"repeats": 32, "datasets": [f"d@{i}" for i in range(1, 6)]}, 422, "320 evaluations"),
        ({"base": {"data": {"env_keys": ["nowhere"]}}}, 422, "nowhere"),
        ({"base": {"dat": {}}}, 422, "a, the tasks of base, repeat 1"),
        ({"color": "red"}, 422, "color"),
    ],
)
def test_a_campaign_that_cannot_be_is_refused_in_a_sentence(
    served: Served, story: Story, changes: Json, status: int, part: str
) -> None:
    with served.client() as client:
        answer = client.post("/v1/campaigns", json=body(**changes))
    assert answer.status_code == status, answer.text
    assert part in answer.text
    assert num_runs(story) == 0


def test_campaigns_of_another_project_do_not_exist(campaign: Campaign, served: Served) -> None:
    path = f"/v1/campaigns/{campaign()['id']}"
    with served.client(served.stranger_key) as client:
        codes = [client.get(path).status_code, client.get(f"{path}/table").status_code]
        codes += [client.post(f"{path}/{act}").status_code for act in ("retry", "cancel")]
        assert codes == [404] * 4
        assert client.get("/v1/campaigns").json()["data"] == []
