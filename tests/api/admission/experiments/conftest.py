"""Experiments of the story's project, and training runs played to an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import served, story, story_url

__all__ = ["served", "story", "story_url"]

Json = dict[str, Any]
Call = Callable[..., Json]
BASE: Json = {
    "name": "base",
    "data": {"env_keys": ["booking", "github"]},
    "schedule": {"total_steps": 4, "train_batch_size": 8, "mini_batch_size": 4},
    "eval": {"interval": 2},
}


def body(**changes: object) -> Json:
    """An experiment that watches pass@1 and the share of groups with signal."""
    return {
        "key": "v0.2.4",
        "title": "larger learning rate",
        "hypothesis": "The learning rate is too conservative.",
        "changes": [{"key": "optimizer.lr", "rationale": "no PPO clipping was seen"}],
        "watch": ["eval/all/pass_at_1 >= +0.05"],
    } | changes


@pytest.fixture
def call(served: Served) -> Call:
    """Send a request as the owner of the project; returns the JSON of an answer with `status`."""

    def send(method: str, path: str, content: object = None, *, status: int = 200) -> Json:
        with served.client() as client:
            answer = client.request(method, f"/v1/experiments{path}", json=content)
        assert answer.status_code == status, answer.text
        found: Json = answer.json()
        return found

    return send


@pytest.fixture
def create(call: Call) -> Call:
    """Create an experiment; returns it as JSON."""

    def make(**changes: object) -> Json:
        return call("POST", "", body(**changes), status=201)

    return make


def train(
    story: Story,
    run_id: str,
    before: float,
    after: float,
    *,
    tasks: int = 40,
    middle: float | None = None,
    ends: bool = True,
    metrics: Json | None = None,
) -> None:
    """Play a training run of four steps: shares of the tasks that pass at its evaluations."""
    story.launch(run_id)
    story.push(run_id, story.started(run_id))
    envs = ("booking", "github")

    def evaluate(step: int, rate: float) -> None:
        rates = dict.fromkeys(envs, rate)
        story.push(run_id, story.evaluation(run_id, step, rates, tasks=tasks))

    evaluate(0, before)
    for step in range(1, 5):
        event = story.step(run_id, step, dict.fromkeys(envs, (before + after) / 2))
        if metrics:
            event = event.model_copy(update={"metrics": event.metrics | metrics})
        story.push(run_id, event)
        if step == 2:
            evaluate(2, (before + after) / 2 if middle is None else middle)
    evaluate(4, after)
    if ends:
        story.finish(run_id, 4)


def fail(story: Story, run_id: str, reason: ReasonCode) -> None:
    """End a run by its trainer's own report, before any evaluation."""
    story.launch(run_id)
    story.push(run_id, story.started(run_id))
    story.finish(run_id, 0, reason, message="because")


def submit(story: Story, name: str, **sections: object) -> str:
    """Submit a run of the base spec with other sections."""
    return story.submit(type(spec()).model_validate(BASE | {"name": name} | sections))
