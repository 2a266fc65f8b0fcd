"""The signal report of a run: windows, environments, repeated steps, the clip ratio."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from api.results.signal import SignalFilters, build_signal
from hillclimb.protocol.events import StepCompleted
from hillclimb.stats.signal_report import report_signal, step_signals
from tests.api.fixtures.story import Story

RATES = {"booking": 0.5, "github": 1.0, "outlook": 0.0}


def clipped(event: StepCompleted, ratio: float) -> StepCompleted:
    return event.model_copy(update={"metrics": {**event.metrics, "policy/ppo_clip_ratio": ratio}})


def trained(story: Story, run_id: str, steps: int) -> list[StepCompleted]:
    events = [clipped(story.step(run_id, s, RATES), 0.1 * s) for s in range(1, steps + 1)]
    story.push(run_id, *events)
    return events


def test_the_report_is_that_of_the_outcomes(story: Story) -> None:
    run_id = story.running()
    events = trained(story, run_id, 3)
    size = story.plans[run_id].spec.rollout.n_samples_per_prompt
    with story.database.transaction() as session:
        found = build_signal(session, run_id, SignalFilters())
    steps = [s for e in events for s in step_signals(e.step, e.outcomes, group_size=size)]
    expected = report_signal([each for each in steps if each.env_key == "booking"], clip_ratio=0.2)
    assert (found["first_step"], found["last_step"]) == (1, 3)
    assert found["clip_ratio"] == pytest.approx(0.2)
    assert {**found["environments"]["booking"], "steps": None} == {
        **asdict(expected), "reading": expected.reading.value, "steps": None,
    }  # fmt: skip
    readings = {key: env["reading"] for key, env in found["environments"].items()}
    assert (readings["github"], readings["outlook"]) == ("saturated", "too_hard")
    assert [point["step"] for point in found["environments"]["github"]["steps"]] == [1, 2, 3]
    assert {point["signal_ratio"] for point in found["environments"]["github"]["steps"]} == {0.0}


def test_a_window_and_an_environment_select(story: Story) -> None:
    run_id = story.running()
    trained(story, run_id, 4)
    with story.database.transaction() as session:
        found = build_signal(session, run_id, SignalFilters(window=2, env_key="github"))
        empty = build_signal(session, run_id, SignalFilters(env_key="nowhere"))
    assert (found["first_step"], found["last_step"], found["clip_ratio"]) == (
        3, 4, pytest.approx(0.35),
    )  # fmt: skip
    assert list(found["environments"]) == ["github"]
    assert (empty["environments"], empty["last_step"], empty["all"]["reading"]) == (
        {}, None, "no_grades",
    )  # fmt: skip


def test_a_repeated_push_counts_once(story: Story) -> None:
    run_id = story.running()
    events = trained(story, run_id, 1)
    with story.database.transaction() as session:
        before = build_signal(session, run_id, SignalFilters())
    story.push(run_id, *events)
    with story.database.transaction() as session:
        assert build_signal(session, run_id, SignalFilters()) == before
