"""The demo's run, as its trainer reported it, through the service: no guard trips."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hillclimb.protocol.events import EvalCompleted, Event, StepCompleted
from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.spec.monitoring.guards import GUARDS
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.story import Story, rollout
from tests.api.scheduling.guards.guarded import Guarded

ROOT = Path(__file__).resolve().parents[4]
FACTS = json.loads((ROOT / "benchmarks" / "results" / "guards_demo.json").read_text())["events"]
DEMO = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
DEFAULTS: dict[str, Any] = {name: {"policy": "stop"} for name in GUARDS}
SHORT_WINDOWS: dict[str, Any] = DEFAULTS | {
    "eval_flat": {"policy": "stop", "evaluations": 2},
    "hopeless": {"policy": "stop", "min_evaluations": 2, "min_share_done": 0.3},
    "reward_collapse": {"policy": "stop", "window_steps": 3},
    "no_signal": {"policy": "stop", "steps": 2},
    "idle_gpus": {"policy": "stop", "window_steps": 3, "max_idle_share": 0.5},
    "logprob_drift": {"policy": "stop", "window_steps": 1, "max_diff": 1e-5},
}


def replayed(guarded: Guarded) -> Iterator[Event]:
    for facts in FACTS:
        place = guarded.story.place(guarded.run_id, facts["step"])
        if "scores" in facts:
            outcomes = tuple(train_rows(facts["step"], facts["scores"]))
            yield StepCompleted(**place, metrics=facts["metrics"], outcomes=outcomes)
        else:
            yield EvalCompleted(
                **place,
                decoding=facts["decoding"],
                temperature=facts["temperature"],
                n_samples_per_prompt=1,
                pass_threshold=1.0,
                metrics={},
                outcomes=tuple(eval_rows(facts)),
                duration_s=facts["duration_s"],
            )


def train_rows(step: int, scores: Mapping[str, list[str]]) -> Iterator[OutcomeRow]:
    for env, groups in scores.items():
        for task, group in enumerate(groups):
            for sample, score in enumerate(group):
                yield rollout(
                    env,
                    task,
                    passed=None if score == "x" else score == "1",
                    decoding="train",
                    split="train",
                    step=step,
                    sample=sample,
                )


def eval_rows(facts: Mapping[str, Any]) -> Iterator[OutcomeRow]:
    for env, passes in facts["passed"].items():
        for task, score in enumerate(passes):
            yield rollout(
                env, task, passed=score == "1", decoding=facts["decoding"], step=facts["step"]
            )


@pytest.mark.parametrize("guards", [DEFAULTS, SHORT_WINDOWS], ids=["defaults", "short windows"])
def test_a_healthy_demo_run_trips_nothing(story: Story, guards: dict[str, Any]) -> None:
    spec = RunSpec.model_validate({**DEMO, "guards": guards})
    guarded = Guarded(story, story.running(spec))
    for event in replayed(guarded):
        guarded.push(event)
        if event.step == 29:
            measured = {name: guarded.state(name) for name in GUARDS}
    assert guarded.told == []
    assert guarded.run.status == "running"
    waiting = {name for name, state in measured.items() if state.status == "waiting"}
    # Three evaluations so far: the defaults need four of them, and six.
    assert waiting == ({"eval_flat", "hopeless"} if guards is DEFAULTS else set())
