"""Experiments as objects: created, edited, listed, with runs; bad input is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.admission.experiments.conftest import Call, Json, body, submit
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story

WATCH = [
    ("eval/all/pass_at_1 >= +0.05", "eval/all/pass_at_1 >= +0.05"),
    ("signal_ratio>0.25", "reward/signal_ratio > 0.25"),
    ("min(reward/variance_per_prompt) > 0", "min(reward/variance_per_prompt) > 0"),
    ("eval/booking/pass_at_3[greedy] < -1e-2", "eval/booking/pass_at_3[greedy] < -0.01"),
]


def test_an_experiment_is_read_back_as_it_was_written(create: Call, call: Call) -> None:
    made = create(watch=[text for text, _ in WATCH], commits=[{"sha": "de6b4b4"}])
    assert (made["key"], made["title"], made["parent"]) == ("v0.2.4", "larger learning rate", None)
    assert [each["metric"] for each in made["text"]["watch"]][:2] == [
        "eval/all/pass_at_1",
        "signal_ratio",
    ]
    assert call("GET", "/v0.2.4") == made
    results = call("GET", "/v0.2.4/results")
    assert (results["word"], results["arms"]) == ("inconclusive", [])
    assert results["why"] == "the experiment has no run"


def test_only_the_parts_that_are_sent_are_replaced(create: Call, call: Call) -> None:
    create()
    edited = call("PATCH", "/v0.2.4", {"next_steps": ["more data"], "hypothesis": None})
    assert edited["text"]["next_steps"] == ["more data"]
    assert edited["text"]["hypothesis"] == ""
    assert edited["text"]["watch"][0]["bound"] == 0.05
    assert edited["title"] == "larger learning rate"
    again = call("PATCH", "/v0.2.4", {"watch": ["signal_ratio > 0.3"]})
    assert [each["bound"] for each in again["text"]["watch"]] == [0.3]


def test_the_list_is_paged_newest_first(create: Call, call: Call) -> None:
    for number in range(3):
        create(key=f"v{number}")
    first = call("GET", "?limit=2")
    assert ([each["key"] for each in first["data"]], first["has_more"]) == (["v2", "v1"], True)
    rest = call("GET", "?limit=2&before=v1")
    assert ([each["key"] for each in rest["data"]], rest["has_more"]) == (["v0"], False)


def test_a_circle_of_parents_is_refused(create: Call, call: Call) -> None:
    for key, parent in (("a", None), ("b", "a"), ("c", "b")):
        create(key=key, parent=parent)
    problem = call("PATCH", "/a", {"parent": "c"}, status=422)
    assert "cannot be its own ancestor" in problem["detail"]
    assert "its own ancestor" in call("PATCH", "/a", {"parent": "a"}, status=422)["detail"]
    assert call("PATCH", "/c", {"parent": None})["parent"] is None
    assert call("PATCH", "/a", {"parent": "c"})["parent"] == "c"
    assert call("PATCH", "/a", {"parent": "nowhere"}, status=404)["code"] == "experiment_not_found"


def test_runs_are_added_with_role_seed_and_arm_and_removed(
    create: Call, call: Call, story: Story
) -> None:
    base = submit(story, "old")
    other = submit(story, "new", schedule={"total_steps": 4, "seed": 3})
    create(baseline=base)
    added = call("POST", "/v0.2.4/runs", {"run_id": other})
    assert [(r["role"], r["arm"], r["seed"]) for r in added["runs"]] == [
        ("baseline", "baseline", 0),
        ("variant", "new", 3),
    ]
    assert call("POST", "/v0.2.4/runs", {"run_id": other}) == added
    for content, part in (
        ({"run_id": other, "role": "baseline"}, "remove it first"),
        ({"run_id": submit(story, "b"), "role": "baseline", "arm": "x"}, "The baseline of"),
        ({"run_id": submit(story, "c"), "arm": "baseline"}, "is its baseline"),
    ):
        assert part in call("POST", "/v0.2.4/runs", content, status=422)["detail"]
    left = call("DELETE", f"/v0.2.4/runs/{base}")
    assert [each["number"] for each in left["runs"]] == [2]
    assert call("DELETE", "/v0.2.4/runs/2")["runs"] == []
    assert call("DELETE", "/v0.2.4/runs/2", status=404)["code"] == "experiment_not_found"


@pytest.mark.parametrize(
    ("changes", "status", "part"),
    [
        ({"key": "changelog"}, 422, "reserved"),
        ({"key": "a/b"}, 422, "key"),
        ({"title": ""}, 422, "title"),
        ({"title": "x" * 900_000}, 422, "title"),
        ({"hypothesis": "x" * 1_000_001}, 413, "too_large"),
        ({"remarks": "a\u0000b"}, 400, "U+0000"),
        ({"parent": "nowhere"}, 404, "nowhere"),
        ({"baseline": "run_0123456789"}, 404, "run_0123456789"),
        ({"watch": ["eval/all/pass_at_1"]}, 422, "is no threshold"),
        ({"watch": ["eval/all/pass_at_1 > 1e"]}, 422, "is not a number"),
        ({"watch": ["x > 1e999"]}, 422, "watch"),
        ({"watch": ["(" * 200_000]}, 422, "is no threshold"),
        ({"watch": ["signal_ratio > 0"] * 33}, 422, "watch"),
        ({"watch": [{"metric": "a b", "operator": ">", "bound": 0}]}, 422, "metric"),
        ({"commits": [{"sha": "not a commit"}]}, 422, "sha"),
        ({"verdict": "confirmed"}, 422, "verdict"),
    ],
)
def test_what_is_no_experiment_is_refused_in_a_sentence(
    call: Call, changes: Json, status: int, part: str
) -> None:
    assert part in str(call("POST", "", body(**changes), status=status))


def test_a_key_is_used_once_per_project(create: Call, call: Call, served: Served) -> None:
    create()
    assert call("POST", "", body(), status=409)["code"] == "experiment_exists"
    with served.client(served.stranger_key) as client:
        assert client.post("/v1/experiments", json=body()).status_code == 201


def test_experiments_and_runs_of_another_project_do_not_exist(
    create: Call, served: Served, story: Story
) -> None:
    create()
    run_id = submit(story, "mine")
    paths: list[tuple[str, str, Any]] = [
        ("GET", "/v0.2.4", None),
        ("PATCH", "/v0.2.4", {"title": "x"}),
        ("GET", "/v0.2.4/results", None),
        ("GET", "/v0.2.4/figures", None),
        ("GET", "/v0.2.4/report", None),
        ("POST", "/v0.2.4/runs", {"run_id": run_id}),
        ("DELETE", "/v0.2.4/runs/1", None),
        ("POST", "/v0.2.4/sweep", {"base": {"data": {"env_keys": ["booking"]}}}),
    ]
    with served.client(served.stranger_key) as client:
        codes = {
            client.request(method, f"/v1/experiments{path}", json=content).status_code
            for method, path, content in paths
        }
        assert codes == {404}
        assert client.get("/v1/experiments").json()["data"] == []
        assert "No experiment yet" in client.get("/v1/experiments/changelog").text
        assert client.post("/v1/experiments", json=body(parent=None)).status_code == 201
        foreign = client.post("/v1/experiments/v0.2.4/runs", json={"run_id": run_id})
        assert (foreign.status_code, foreign.json()["code"]) == (404, "run_not_found")
