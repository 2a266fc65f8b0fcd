"""Evaluations rescored under another threshold: every figure from the same outcomes."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.protocol.events import EvalCompleted
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, rollout
from tests.api.fixtures.story_fixtures import blobs, served

__all__ = ["blobs", "served"]
BEFORE, AFTER = [0.6] * 4 + [0.2] * 8, [0.6] * 10 + [0.2] * 2
"""Scores of twelve tasks: nothing passes at 1.0; at 0.5 four before and ten after."""


def scored(story: Story, run_id: str, step: int, scores: list[float]) -> EvalCompleted:
    rows = tuple(
        rollout("booking", task, passed=True, step=step).model_copy(
            update={"score": score, "num_tokens": 100 if score > 0.5 else 40}
        )
        for task, score in enumerate(scores)
    )
    return story.evaluation(run_id, step, {}).model_copy(update={"outcomes": rows})


def a_run(story: Story) -> str:
    run_id = story.running()
    story.push(run_id, scored(story, run_id, 0, BEFORE), scored(story, run_id, 40, AFTER))
    return run_id


def ask(served: Served, path: str, **query: object) -> dict[str, Any]:
    with served.client() as client:
        response = client.get(path, params={key: str(value) for key, value in query.items()})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_the_eval_table_is_counted_under_the_threshold_of_the_request(
    served: Served, story: Story
) -> None:
    path = f"/v1/runs/{a_run(story)}/evals"
    rescored = ask(served, path, threshold=0.5)
    assert rescored["threshold"] == 0.5
    assert [each["pass_threshold"] for each in rescored["data"]] == [0.5, 0.5]
    assert [each["all"]["passes"] for each in rescored["data"]] == [4, 10]
    stored = ask(served, path)
    assert stored["threshold"] is None
    assert [(each["pass_threshold"], each["all"]["passes"]) for each in stored["data"]] == [
        (1.0, 0),
        (1.0, 0),
    ]
    # A score equal to the threshold passes.
    assert [each["all"]["passes"] for each in ask(served, path, threshold=0.6)["data"]] == [4, 10]


def test_the_report_counts_tasks_and_failures_under_it(served: Served, story: Story) -> None:
    path = f"/v1/runs/{a_run(story)}/evals/report"
    report = ask(served, path, threshold=0.5)
    sampled = report["sampled"]
    assert (report["threshold"], sampled["pass_threshold"]) == (0.5, 0.5)
    assert (sampled["before"], sampled["after"]) == (pytest.approx(4 / 12), pytest.approx(10 / 12))
    assert (sampled["num_gained"], sampled["num_lost"]) == (6, 0)
    assert sampled["p_value"] == 2 * 0.5**6
    assert sampled["verdict"] == "improved"
    wrong = sampled["failures"]["wrong_state"]
    assert (wrong["before"], wrong["after"]) == (8, 2)
    stored = ask(served, path)
    assert (stored["threshold"], stored["sampled"]["pass_threshold"]) == (None, 1.0)
    assert stored["sampled"]["verdict"] == "failing"
    assert stored["sampled"]["failures"]["wrong_state"]["after"] == 12


def test_a_comparison_takes_flips_and_behaviour_from_it(served: Served, story: Story) -> None:
    run_id = a_run(story)
    query = {"a": f"{run_id}@0", "b": f"{run_id}@40"}
    found = ask(served, "/v1/compare", **query, threshold=0.5)
    sampled = found["decodings"]["sampled"]
    assert (found["threshold"], sampled["pass_thresholds"]) == (0.5, [0.5, 0.5])
    assert [each["task_key"] for each in sampled["gained"]] == sorted(
        f"booking-{task}" for task in range(4, 10)
    )
    assert sampled["gained"][0]["a_rollout"].endswith("/4/0")
    assert sampled["behaviour"]["a"]["all"]["tokens_of_passes"] == 100.0
    assert sampled["behaviour"]["a"]["all"]["tokens_of_fails"] == 40.0
    stored = ask(served, "/v1/compare", **query)["decodings"]["sampled"]
    assert (stored["gained"], stored["pass_thresholds"]) == ([], [1.0, 1.0])
    assert stored["behaviour"]["a"]["all"]["tokens_of_passes"] is None


@pytest.mark.parametrize("threshold", ["0", "-1", "1.01", "nan", "inf", "half"])
@pytest.mark.parametrize("path", ["evals", "evals/report", "compare"])
def test_a_threshold_outside_of_scores_is_refused(
    served: Served, story: Story, path: str, threshold: str
) -> None:
    run_id = a_run(story)
    query = {"threshold": threshold}
    if path == "compare":
        url, query = "/v1/compare", {**query, "a": run_id, "b": run_id}
    else:
        url = f"/v1/runs/{run_id}/{path}"
    with served.client() as client:
        response = client.get(url, params=query)
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
