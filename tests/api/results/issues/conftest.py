"""Issues over two evaluations with failure patterns, through the real application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hillclimb.protocol.events import EvalCompleted
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]

Json = dict[str, Any]
Create = Callable[..., Json]
BODY = {"title": "Cannot signal done", "severity": "critical", "symptom": "cannot_signal_done"}


def searched(
    evaluation: EvalCompleted, shares: Mapping[str, float], *, tasks: int, version: int | None = 1
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
                "patterns_version": version,
            }
        )
        for row in evaluation.outcomes
    )
    return evaluation.model_copy(update={"outcomes": rows})


def evaluate(
    story: Story, run_id: str, step: int, share: float, *, tasks: int = 40, version: int | None = 1
) -> None:
    """Evaluate booking; this share of the tasks cannot signal done, and half of them pass."""
    evaluation = story.evaluation(run_id, step, {"booking": 0.5}, tasks=tasks)
    shares = {"cannot_signal_done": share}
    story.push(run_id, searched(evaluation, shares, tasks=tasks, version=version))


@pytest.fixture
def run_id(story: Story) -> str:
    run_id = story.running()
    evaluate(story, run_id, 0, 0.4)
    evaluate(story, run_id, 40, 0.0)
    return run_id


@pytest.fixture
def create(served: Served, run_id: str) -> Create:
    """Create an issue of the run from step 0 to 40, with changes."""

    def post(**changes: object) -> Json:
        body = {**BODY, "baseline": f"{run_id}@0", "after": f"{run_id}@40", **changes}
        with served.client() as client:
            answer = client.post("/v1/issues", json=body)
        assert answer.status_code == 201, answer.text
        created: Json = answer.json()
        return created

    return post
