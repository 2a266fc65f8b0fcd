"""`hillclimb trace`: phases of one step end where the next event is, and parts lie within."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hillclimb.cli.tools.trace import StepNotCompleted, step_trace
from hillclimb.protocol.payloads.events import EventPayload
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, blobs, from_json, hc, served, story, story_url
from tests.hillclimb.client.payloads import event_json

__all__ = ["blobs", "hc", "served", "story", "story_url"]


def slices(trace: dict[str, Any], track: int) -> dict[str, tuple[float, float]]:
    rows = [each for each in trace["traceEvents"] if each["ph"] == "X" and each["tid"] == track]
    return {each["name"]: (each["ts"], each["dur"]) for each in rows}


def event(
    kind: str, second: float, *, step: int = 2, attempt: int = 1, **data: Any
) -> EventPayload:
    made = EventPayload.model_validate(event_json(kind, {"step": step} | data))
    at = made.created_at + timedelta(seconds=second)
    return made.model_copy(update={"created_at": at, "attempt": attempt})


JOURNAL = [
    event("phase.started", 0, step=1, phase="rollout"),
    event("step.completed", 5, step=1),
    event("phase.started", 10, phase="rollout"),
    event("step.completed", 11),
    event("phase.started", 100, phase="rollout", attempt=2),
    event("phase.started", 104, phase="train", attempt=2),
    event("phase.started", 109, phase="sync", attempt=2),
    event("step.completed", 110, attempt=2),
    event("phase.started", 111, phase="eval", decoding="greedy", attempt=2),
    event("eval.completed", 118, decoding="greedy", attempt=2),
    event("phase.started", 119, step=3, phase="rollout", attempt=2),
]


def test_the_last_attempt_of_the_step_is_drawn_with_parts_inside_their_phases() -> None:
    timings = {"generate": 3.5, "convert_to_training_input": 0.5, "policy_train": 4.0, "step": 10.0}
    trace = step_trace(JOURNAL, timings, run_id="run_1", step=2)
    assert slices(trace, 1) == {
        "rollout": (0.0, 4e6),
        "train": (4e6, 5e6),
        "sync": (9e6, 1e6),
        "eval greedy": (11e6, 7e6),
    }
    assert slices(trace, 2) == {
        "generate": (0.0, 3.5e6),
        "convert_to_training_input": (4e6, 0.5e6),
        "policy_train": (4.5e6, 4e6),
    }
    assert trace["otherData"]["attempt"] == 2


def test_a_step_that_is_not_completed_is_refused() -> None:
    with pytest.raises(StepNotCompleted):
        step_trace(JOURNAL, {}, run_id="run_1", step=3)


def test_the_command_prints_a_trace_and_refuses_other_steps(hc: Invoke, story: Story) -> None:
    run_id = story.running()
    story.push(
        run_id,
        story.phase(run_id, 1, "rollout"),
        story.phase(run_id, 1, "train"),
        story.step(run_id, 1, {"booking": 0.5}),
    )
    trace = from_json(hc("trace", run_id, "--step", "1"))
    assert slices(trace, 1) == {"rollout": (0.0, 1e6), "train": (1e6, 1e6)}
    refused = hc("trace", run_id, "--step", "2")
    assert refused.exit_code == 2
    assert "has not completed step 2" in refused.stderr
