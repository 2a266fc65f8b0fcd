"""Runs that start from another run's weights, or imitate its rollouts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import served, story, story_url

__all__ = ["served", "story", "story_url"]
Json = dict[str, Any]


@pytest.fixture
def warm(story: Story) -> str:
    """A run with a checkpoint of step 20."""
    run_id = story.running(spec("warm"))
    story.push(run_id, story.checkpoint(run_id, 20))
    return run_id


def submit(served: Served, status: int = 201, **sections: object) -> Json:
    body = spec("later").model_dump(mode="json") | sections
    with served.client() as client:
        answer = client.post("/v1/runs", json=body)
    assert answer.status_code == status, answer.text
    made: Json = answer.json()
    return made


@pytest.mark.parametrize("step", ["", "@20", "@20/attempt-1"])
def test_the_checkpoint_is_written_out(served: Served, warm: str, step: str) -> None:
    made = submit(served, model={"source": f"run:{warm}{step}"})
    assert made["spec"]["model"]["source"] == f"run:{warm}@20/attempt-1"
    assert made["progress"]["step"] == 0


def test_a_warm_start_counts_its_steps(served: Served) -> None:
    sft = {"demonstrations": "/data/shown.jsonl"}
    made = submit(served, kind="sft", sft=sft, schedule={"total_steps": 7})
    assert made["progress"]["total"] == 7


@pytest.mark.parametrize(
    ("sections", "status", "part"),
    [
        ({"model": {"source": "run:@last"}}, 422, "names no checkpoint"),
        ({"model": {"source": "run:run_00000000000000000000000000"}}, 404, "run_0000"),
        ({"kind": "sft"}, 422, "imitates one thing"),
        ({"kind": "sft", "sft": {"demonstrations": "shown.jsonl"}}, 422, "absolute path"),
        (
            {"kind": "sft", "sft": {"demonstrations": "s3://b/k?endpoint_url=http://evil"}},
            422,
            "has a query or a fragment",
        ),
        (
            {"kind": "sft", "sft": {"rollouts_of": "run_00000000000000000000000000"}},
            404,
            "run_0000",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    served: Served, sections: Json, status: int, part: str
) -> None:
    assert part in submit(served, status, **sections)["detail"]


def test_a_step_without_a_checkpoint_and_other_tokens_are_refused(
    served: Served, warm: str
) -> None:
    missing = submit(served, 422, model={"source": f"run:{warm}@7"})
    assert "no complete checkpoint at step 7" in missing["detail"]
    other = {"source": "builtin:tiny-qwen3-b"}
    misfit = submit(served, 422, kind="sft", sft={"rollouts_of": warm}, model=other)
    assert f"run:{warm}" in misfit["detail"]
    submit(served, kind="sft", sft={"rollouts_of": warm}, model={"source": f"run:{warm}"})


def test_another_projects_run_does_not_exist(served: Served, story: Story) -> None:
    theirs = story.submit(spec("theirs"), project_id="prj_stranger")
    submit(served, 404, model={"source": f"run:{theirs}"})
    submit(served, 404, kind="sft", sft={"rollouts_of": theirs})
