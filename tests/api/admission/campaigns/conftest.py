"""Campaigns of the story's project, and their runs played to an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import served, story, story_url

__all__ = ["served", "story", "story_url"]

Json = dict[str, Any]
Campaign = Callable[..., Json]


def body(**changes: object) -> Json:
    """Two models, three repeats, a sampled and a greedy decoding."""
    return {
        "name": "models",
        "base": {"data": {"env_keys": ["booking", "github"], "eval_tasks_per_env": 8}},
        "models": [
            {"name": "a", "source": "builtin:tiny-qwen3-a"},
            {"name": "b", "source": "builtin:tiny-qwen3-b"},
        ],
        "decodings": [
            {"name": "sampled", "temperature": 1.0},
            {"name": "greedy", "temperature": 0.0},
        ],
        "repeats": 3,
    } | changes


@pytest.fixture
def campaign(served: Served, story: Story) -> Campaign:
    """Create a campaign over HTTP; returns it as JSON."""

    def create(**changes: object) -> Json:
        with served.client() as client:
            answer = client.post("/v1/campaigns", json=body(**changes))
        assert answer.status_code == 201, answer.text
        created: Json = answer.json()
        return created

    return create


def evaluate(
    story: Story, run_id: str, rate: float, *, decodings: Sequence[str] = ("sampled",)
) -> None:
    """Play an evaluation run to its end: `rate` of its eight tasks per environment pass."""
    story.launch(run_id)
    story.push(run_id, story.started(run_id))
    rates = {"booking": rate, "github": rate}
    for decoding in decodings:
        story.push(run_id, story.evaluation(run_id, 0, rates, tasks=8, decoding=decoding))
    story.finish(run_id, 0)


def fail(story: Story, run_id: str, reason: ReasonCode) -> None:
    """End a run by its trainer's own report."""
    story.launch(run_id)
    story.push(run_id, story.started(run_id))
    story.finish(run_id, 0, reason, message="because")
