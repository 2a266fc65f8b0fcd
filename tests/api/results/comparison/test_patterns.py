"""The report of failure patterns: counts by hand, exemplars, filters, bad input."""

from __future__ import annotations

import pytest

from hillclimb.protocol.events import EvalCompleted
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story


def searched(
    evaluation: EvalCompleted, shares: dict[str, float], *, tasks: int = 20
) -> EvalCompleted:
    """Return the evaluation in which the first `share * tasks` tasks show each pattern."""
    rows = tuple(
        row.model_copy(
            update={
                "patterns": tuple(
                    name
                    for name, share in shares.items()
                    if int(row.task_key.rsplit("-", 1)[1]) < share * tasks
                ),
                "patterns_version": 1,
            }
        )
        for row in evaluation.outcomes
    )
    return evaluation.model_copy(update={"outcomes": rows})


@pytest.fixture
def run_id(story: Story) -> str:
    run = story.running()
    for step, shares in ((0, {"max_turns": 0.8, "not_found": 0.2}), (40, {"not_found": 0.25})):
        evaluation = story.evaluation(run, step, {"booking": 0.5, "github": 0.5}, tasks=20)
        story.push(run, searched(evaluation, shares))
    return run


def test_rates_changes_and_exemplars(served: Served, run_id: str) -> None:
    with served.client() as client:
        report = client.get(f"/v1/runs/{run_id}/patterns").json()
    by_name = {each["name"]: each for each in report["data"]}
    assert (report["before_step"], report["after_step"], report["version"]) == (0, 40, 1)
    assert (report["num_searched_before"], report["num_searched_after"]) == (40, 40)
    gone, same = by_name["max_turns"], by_name["not_found"]
    assert (gone["num_before"], gone["num_after"]) == (32, 0)
    assert (gone["before"], gone["after"], gone["delta"]) == (0.8, 0.0, -0.8)
    # 32 of 40 tasks lost it and none gained it: exact McNemar.
    assert gone["p_value"] == pytest.approx(2.0**-31)
    assert (gone["status"], gone["exemplars"]) == ("fixed", [])
    assert (same["num_before"], same["num_after"]) == (8, 10)
    assert same["p_value"] == pytest.approx(0.5)
    assert (same["status"], len(same["exemplars"])) == ("needs_analysis", 3)
    assert report["data"][0]["name"] == "not_found"
    assert by_name["context_overflow"]["status"] == "absent"


def test_one_environment_and_an_older_trainers_rollouts(
    served: Served, story: Story, run_id: str
) -> None:
    story.push(run_id, story.evaluation(run_id, 60, {"booking": 0.5}, tasks=20))
    with served.client() as client:
        one = client.get(f"/v1/runs/{run_id}/patterns", params={"env": "github", "after": 40})
        older = client.get(f"/v1/runs/{run_id}/patterns").json()
    assert (one.json()["num_searched_before"], one.json()["num_searched_after"]) == (20, 20)
    assert (older["after_step"], older["num_searched_after"]) == (60, 0)
    assert {each["status"] for each in older["data"]} == {"unknown"}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"before": "-1"}, 422),
        ({"after": "7"}, 404),
        ({"decoding": "nowhere"}, 404),
        ({"step": "0"}, 422),
        ({"env": "\x00"}, 400),
        ({"env": "nowhere"}, 200),
    ],
)
def test_bad_filters_are_refused(
    served: Served, run_id: str, query: dict[str, str], status: int
) -> None:
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/patterns", params=query)
    assert answer.status_code == status, answer.text


def test_another_projects_run_does_not_exist(served: Served, run_id: str) -> None:
    with served.client(served.stranger_key) as client:
        assert client.get(f"/v1/runs/{run_id}/patterns").status_code == 404
