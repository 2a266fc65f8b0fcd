"""Forks: a new run from the spec of another one, with changes, from its start or a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from api.tables import Run
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import served, story, story_url

__all__ = ["served", "story", "story_url"]
Json = dict[str, Any]


@pytest.fixture
def parent(story: Story) -> str:
    """A run at step 30 of 40 with a checkpoint of step 20."""
    run_id = story.running(spec("parent"))
    story.push(run_id, story.checkpoint(run_id, 20))
    return run_id


def fork(served: Served, run_id: str, status: int = 201, **body: object) -> Json:
    with served.client() as client:
        answer = client.post(f"/v1/runs/{run_id}/fork", json=body)
    assert answer.status_code == status, answer.text
    made: Json = answer.json()
    return made


def test_a_fork_has_the_resolved_spec_with_the_changes_and_knows_its_parent(
    served: Served, story: Story, parent: str
) -> None:
    made = fork(served, parent, changes={"optimizer.lr": 5e-4, "eval.interval": 5})
    assert made["id"] != parent
    assert made["name"] == "parent fork"
    assert made["config_diff"] == [
        {"pointer": "/eval/interval", "a": 10, "b": 5},
        {"pointer": "/optimizer/lr", "a": 2.5e-4, "b": 5e-4},
    ]
    assert made["spec"]["lineage"] == {
        "resumed_from": None,
        "data_order": "continue",
        "forked_from": {"run_id": parent, "step": None},
    }
    assert fork(served, parent, changes={"name": "mine"})["name"] == "mine"
    assert fork(served, parent, name="own")["name"] == "own"
    again = fork(served, made["id"], changes={})
    assert (again["name"], again["config_diff"]) == ("parent fork", [])
    with story.database.transaction() as session:
        assert session.get_one(Run, made["id"]).status == "queued"


def test_from_a_checkpoint_the_order_of_tasks_continues_unless_the_tasks_differ(
    served: Served, parent: str
) -> None:
    source = {"run_id": parent, "step": 20, "attempt": 1}
    same = fork(served, parent, step=20, changes={"optimizer.lr": 1e-3})["spec"]["lineage"]
    assert (same["resumed_from"], same["data_order"]) == (source, "continue")
    assert same["forked_from"] == {"run_id": parent, "step": 20}
    for changes in ({"data.train_tasks_per_env": 4000}, {"schedule.train_batch_size": 40}):
        larger = fork(served, parent, step=20, changes=changes)["spec"]["lineage"]
        assert (larger["resumed_from"], larger["data_order"]) == (source, "restart")
    chosen = fork(served, parent, step=20, changes={"lineage.data_order": "restart"})
    assert chosen["spec"]["lineage"]["data_order"] == "restart"
    assert chosen["config_diff"] == []


@pytest.mark.parametrize(
    ("body", "status", "code", "part"),
    [
        ({"step": 7}, 422, "checkpoint_not_found", "no complete checkpoint at step 7"),
        ({"changes": {"optimizer.lrr": 1}}, 422, "invalid_fork", "/optimizer/lrr"),
        ({"changes": {"": 1}}, 422, "invalid", "changes"),
        ({"changes": {'a."b': 1}}, 422, "invalid_fork", "quotes"),
        ({"changes": {"name.first": "x"}}, 422, "invalid_fork", "name is not a section"),
        ({"changes": {"lineage.resumed_from": None}}, 422, "invalid_fork", "sets lineage itself"),
        ({"changes": {"optimizer": "fast"}}, 422, "invalid_fork", "/optimizer"),
        ({"changes": {f"a{i}": i for i in range(65)}}, 422, "invalid", "64"),
        ({"changes": {"name": "x" * 900_000}}, 422, "invalid_fork", "/name"),
        ({"changes": {"lineage.data_order": "restart"}}, 422, "invalid_fork", "data_order restart"),
        (
            {"step": 20, "changes": {"schedule.total_steps": 20, "eval.interval": 0}},
            422,
            "checkpoint_misfit",
            "set schedule.total_steps to more",
        ),
        (
            {
                "step": 20,
                "changes": {"data.seed": 5, "lineage.data_order": "continue"},
            },
            422,
            "checkpoint_misfit",
            "data.seed = 0, and this run asks for 5",
        ),
        (
            {"step": 20, "changes": {"learner.lora": {"rank": 8}}},
            422,
            "checkpoint_misfit",
            "no adapter, and this run asks for an adapter of rank 8",
        ),
        ({"color": "red"}, 422, "invalid", "color"),
    ],
)
def test_a_fork_that_cannot_be_is_refused_in_a_sentence(
    served: Served, parent: str, body: Json, status: int, code: str, part: str
) -> None:
    problem = fork(served, parent, status, **body)
    assert problem["code"] == code, problem
    assert part in str(problem)


def test_a_repeated_request_forks_once(served: Served, parent: str) -> None:
    key = {"Idempotency-Key": "once"}
    with served.client() as client:
        path = f"/v1/runs/{parent}/fork"
        first = client.post(path, json={"changes": {"optimizer.lr": 1e-3}}, headers=key)
        again = client.post(path, json={"changes": {"optimizer.lr": 1e-3}}, headers=key)
        other = client.post(path, json={}, headers=key)
    assert first.json() == again.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert other.json()["code"] == "idempotency_key_reused"


def test_runs_of_another_project_are_neither_parents_nor_sources(
    served: Served, parent: str
) -> None:
    body = spec().model_dump(mode="json")
    with served.client(served.stranger_key) as client:
        codes = [client.post(f"/v1/runs/{parent}/fork", json={}).status_code]
        for lineage in (
            {"forked_from": {"run_id": parent}},
            {"resumed_from": {"run_id": parent, "step": 20, "attempt": 1}},
        ):
            answer = client.post("/v1/runs", json=body | {"lineage": lineage})
            codes.append(answer.status_code)
    assert codes == [404, 404, 422]


def test_a_submitted_spec_that_cannot_continue_is_refused_before_it_has_a_machine(
    served: Served, parent: str
) -> None:
    source = {"resumed_from": {"run_id": parent, "step": 20, "attempt": 1}}
    body = spec("other").model_dump(mode="json") | {"lineage": source}
    body["data"]["train_tasks_per_env"] = 4000
    with served.client() as client:
        answers = [client.post(path, json=body) for path in ("/v1/runs", "/v1/runs/plan")]
        for answer in answers:
            assert answer.status_code == 422, answer.text
            assert "Set lineage.data_order to restart" in answer.json()["detail"]
        body["lineage"] = source | {"data_order": "restart"}
        assert client.post("/v1/runs", json=body).status_code == 201
    assert RunSpec.model_validate(body).lineage.data_order == "restart"
