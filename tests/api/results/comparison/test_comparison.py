"""Two runs compared: their specs, verdicts, flipped tasks and behaviour."""

from __future__ import annotations

import pytest

from api.results.comparison.comparison import Point, build_comparison
from api.results.comparison.config_diff import config_diff
from api.results.errors import NoSuchEval
from api.results.evals.report import VerdictOptions
from api.tables import Run
from tests.api.fixtures.story import Story, spec

OLD = {"booking": 0.2, "github": 0.5}
NEW = {"booking": 0.6, "github": 0.4}


def two_runs(story: Story) -> tuple[str, str]:
    other = spec().model_copy(update={"name": "hotter"})
    other = other.model_copy(update={"optimizer": other.optimizer.model_copy(update={"lr": 5e-3})})
    a, b = story.running(), story.running(other)
    story.push(a, story.evaluation(a, 0, OLD), story.evaluation(a, 40, OLD))
    story.push(b, story.evaluation(b, 20, OLD), story.evaluation(b, 40, NEW))
    return a, b


def test_the_second_run_is_compared_with_the_first(story: Story) -> None:
    a, b = two_runs(story)
    with story.database.transaction() as session:
        runs = [session.get_one(Run, run_id) for run_id in (a, b)]
        found = build_comparison(session, Point(run=runs[0]), Point(run=runs[1]))
    assert (found["a"]["step"], found["b"]["step"], found["num_candidates"]) == (40, 40, 1)
    assert [each["pointer"] for each in found["config_diff"]] == ["/optimizer/lr"]
    assert found["config_diff"][0]["b"] == 5e-3
    sampled = found["decodings"]["sampled"]
    assert sampled["environments"]["booking"]["verdict"] == "improved"
    assert sampled["environments"]["github"]["verdict"] == "regressed"
    assert (len(sampled["gained"]), len(sampled["lost"])) == (24, 6)
    gained = sampled["gained"][0]
    assert (gained["env_key"], gained["change"]) == ("booking", 1.0)
    # Ids are unique within a run: both runs rolled this task out under the same one.
    number = gained["task_key"].removeprefix("booking-")
    assert gained["a_rollout"] == gained["b_rollout"]
    assert gained["a_rollout"].startswith("1/40/eval/sampled/booking/")
    assert gained["a_rollout"].endswith(f"/{number}/0")
    assert set(sampled["behaviour"]["a"]) == {"all", "booking", "github"}
    assert sampled["behaviour"]["b"]["all"]["num_rollouts"] == 120
    assert (sampled["num_tasks_of_a_alone"], sampled["num_tasks_of_b_alone"]) == (0, 0)


def test_a_step_that_may_have_been_chosen_on_either_side_multiplies(story: Story) -> None:
    """Each schedule plans evaluations at 10, 20, 30 and 40."""
    a, b = two_runs(story)
    with story.database.transaction() as session:
        runs = [session.get_one(Run, run_id) for run_id in (a, b)]
        one = build_comparison(session, Point(run=runs[0]), Point(run=runs[1], step=20))
        same = build_comparison(session, Point(run=runs[1], step=20), Point(run=runs[1], step=20))
    assert (one["num_candidates"], same["num_candidates"]) == (4, 16)
    assert same["decodings"]["sampled"]["gained"] == []
    assert same["config_diff"] == []


def test_what_is_not_there_is_refused_with_the_runs_id(story: Story) -> None:
    a, b = two_runs(story)
    empty = story.running()
    with story.database.transaction() as session:
        first, second, third = (session.get_one(Run, run_id) for run_id in (a, b, empty))
        with pytest.raises(NoSuchEval, match=f"{a} has no evaluation at step 7"):
            build_comparison(session, Point(run=first, step=7), Point(run=second))
        with pytest.raises(NoSuchEval, match=f"{empty} has no evaluation yet"):
            build_comparison(session, Point(run=first), Point(run=third))
        with pytest.raises(NoSuchEval, match="share no decoding with 3 rollouts"):
            build_comparison(session, Point(run=first), Point(run=second), VerdictOptions(k=3))


def test_a_difference_of_specs_names_each_key() -> None:
    first = {"name": "a", "x": {"kept": 1, "gone": None, "a/b": [1]}, "same": {"y": 2}}
    second = {"name": "b", "x": {"kept": 1, "new": 3, "a/b": [2]}, "same": {"y": 2}}
    assert config_diff(first, second) == [
        {"pointer": "/x/a~1b", "a": [1], "b": [2]},
        {"pointer": "/x/gone", "a": None, "b": None},
        {"pointer": "/x/new", "a": None, "b": 3},
    ]
