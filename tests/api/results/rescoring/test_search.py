"""Stored rollouts searched again by the present detectors; their trainers' findings stay."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from sqlalchemy import update

from api.results.rescoring import process, search
from api.tables import OutcomeRecord, Run
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.patterns.registry import PATTERNS_VERSION
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, rollout

FILE = "trajectories/step-{step:06d}-eval-sampled.jsonl.gz"
TASKS = 12
Json = dict[str, Any]


def line_of(task: int, *, repeats: int, score: float = 0.0) -> Json:
    """A rollout that makes one call so often, and gets the same answer."""
    call = {
        "response": '<tool_call>{"name": "read", "arguments": {}}</tool_call>',
        "tool_name": "read",
        "tool_arguments": {"page": "first"},
        "observation": "nothing there",
        "is_error": False,
        "call_index": 0,
    }
    done = {"response": "<done>", "tool_name": None, "tool_arguments": None, "observation": None}
    task_facts = {"key": f"booking-{task}", "env_key": "booking", "prompt": "Book a first room."}
    return {
        "task": task_facts | {"env_variables": {}},
        "turns": [*[call] * repeats, done | {"is_error": False}],
        "stop_reason": "done",
        "outcome": {"status": "graded", "score": score},
        "token_ids": [1, 2],
        "action_mask": [0, 1],
        "logprobs": [-0.5],
        "weight_versions": [0],
    }


def evaluate(
    story: Story, blobs: DiskStore, run_id: str, step: int, *, repeating: int, version: int | None
) -> None:
    """Twelve tasks, of which the first `repeating` repeat a call; none is found by `version`."""
    lines = [line_of(task, repeats=3 if task < repeating else 2) for task in range(TASKS)]
    key = f"runs/{run_id}/attempt-1/{FILE.format(step=step)}"
    blobs.put(key, gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    searched = {"patterns_version": version, "patterns": None if version is None else ()}
    rows = tuple(
        rollout("booking", task, passed=False, step=step).model_copy(
            update={"trajectory": FILE.format(step=step), "trajectory_line": task, **searched}
        )
        for task in range(TASKS)
    )
    event = story.evaluation(run_id, step, {})
    story.push(run_id, event.model_copy(update={"outcomes": rows}))


@pytest.fixture
def run_id(story: Story, blobs: DiskStore) -> str:
    """Step 0 was searched by version 0, step 40 by nobody."""
    run_id = story.running()
    evaluate(story, blobs, run_id, 0, repeating=10, version=0)
    evaluate(story, blobs, run_id, 40, repeating=2, version=None)
    return run_id


def post(served: Served, run_id: str, *, status: int = 200, **body: object) -> Json:
    with served.client() as client:
        path = f"/v1/runs/{run_id}/patterns/searches"
        answer = client.post(path, json={"detectors": "present"} | body)
    assert answer.status_code == status, answer.text
    found: Json = answer.json()
    return found


def patterns(served: Served, run_id: str, *, status: int = 200, **query: int) -> Json:
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/patterns", params=query)
    assert answer.status_code == status, answer.text
    found: Json = answer.json()
    return found


def repetition(report: Json) -> Json:
    (row,) = (each for each in report["data"] if each["name"] == "tool_repetition")
    found: Json = row
    return found


def test_every_stored_rollout_is_searched_by_the_present_detectors(
    served: Served, run_id: str
) -> None:
    found = post(served, run_id)
    assert (found["version"], found["num_searched"]) == (PATTERNS_VERSION, 2 * TASKS)
    assert found["num_changed"] == 2 * TASKS - 2, "two non-repeating rollouts of step 0 agree"
    assert (found["num_by_trainer"], found["unsearched"]) == (0, {})
    report = patterns(served, run_id)
    assert report["version"] == PATTERNS_VERSION
    row = repetition(report)
    assert (row["num_before"], row["num_after"], row["status"]) == (10, 2, "improved")
    assert row["exemplars"][0].startswith("1/40/eval/sampled/booking")


def test_the_trainers_findings_stay_under_their_version(served: Served, run_id: str) -> None:
    post(served, run_id)
    older = patterns(served, run_id, version=0)
    assert (older["version"], older["num_searched_before"]) == (0, TASKS)
    assert (older["num_searched_after"], repetition(older)["num_before"]) == (0, 0)


def test_a_repeat_replaces_and_is_listed_once(served: Served, run_id: str) -> None:
    assert post(served, run_id, step=0)["num_searched"] == TASKS
    assert post(served, run_id)["num_searched"] == 2 * TASKS
    first = post(served, run_id)
    with served.client() as client:
        listed = client.get(f"/v1/runs/{run_id}/patterns/searches").json()["data"]
    assert [(each["version"], each["num_searched"]) for each in listed] == [
        (PATTERNS_VERSION, first["num_searched"])
    ]


def test_findings_of_several_versions_are_refused_until_one_searched_all(
    served: Served, story: Story, blobs: DiskStore, run_id: str
) -> None:
    evaluate(story, blobs, run_id, 20, repeating=5, version=PATTERNS_VERSION)
    mixed = patterns(served, run_id, status=409, before=0, after=20)
    assert mixed["code"] == "mixed_detectors"
    assert f"hillclimb rescore {run_id} --patterns" in mixed["detail"]
    found = post(served, run_id)
    assert found["num_by_trainer"] == TASKS
    both = patterns(served, run_id, before=0, after=20)
    assert both["version"] == PATTERNS_VERSION
    assert repetition(both)["num_before"] == 10
    assert repetition(both)["num_after"] == 0, "its trainer's own finding"


def test_rollouts_without_a_readable_trajectory_are_named(
    served: Served, blobs: DiskStore, run_id: str
) -> None:
    key = f"runs/{run_id}/attempt-1/{FILE.format(step=40)}"
    blobs.put(key, gzip.compress(b'{"task": 3}\n' + json.dumps(line_of(1, repeats=3)).encode()))
    found = post(served, run_id, step=40)
    assert found["unsearched"] == {"no_trajectory": TASKS - 2, "unreadable_trajectory": 1}
    assert found["num_searched"] == 1
    blobs.delete_prefix(key)
    assert post(served, run_id, step=40)["unsearched"] == {"no_trajectory": TASKS}


def test_the_threshold_of_each_evaluation_decides_what_failed(
    served: Served, story: Story, blobs: DiskStore
) -> None:
    """A score of 0.6 passes from 0.5 on: saying done early is no failure then."""
    run_id = story.running()
    for step, threshold in ((0, 1.0), (40, 0.5)):
        lines = [line_of(task, repeats=1, score=0.6) for task in range(TASKS)]
        key = f"runs/{run_id}/attempt-1/{FILE.format(step=step)}"
        blobs.put(key, gzip.compress("".join(json.dumps(each) + "\n" for each in lines).encode()))
        rows = tuple(
            rollout("booking", task, passed=False, step=step).model_copy(
                update={"trajectory": FILE.format(step=step), "trajectory_line": task, "score": 0.6}
            )
            for task in range(TASKS)
        )
        changes = {"outcomes": rows, "pass_threshold": threshold}
        story.push(run_id, story.evaluation(run_id, step, {}).model_copy(update=changes))
    post(served, run_id)
    (row,) = (e for e in patterns(served, run_id)["data"] if e["name"] == "premature_done")
    assert (row["num_before"], row["num_after"]) == (TASKS, 0)


def test_runs_of_other_platforms_and_outdated_specs_are_searched_too(
    served: Served, story: Story, run_id: str
) -> None:
    """No world is replayed: the stored text is all that detectors read."""
    with story.database.transaction() as session:
        spec = dict(session.get_one(Run, run_id).spec)
        spec["environment"] = {"provider": "fleet", "of_another_version": True}
        session.execute(update(Run).values(spec=spec))
    assert post(served, run_id)["num_searched"] == 2 * TASKS


def test_rollouts_that_never_began_are_not_searched(
    served: Served, story: Story, run_id: str
) -> None:
    with story.database.transaction() as session:
        session.execute(
            update(OutcomeRecord)
            .where(OutcomeRecord.task_key == "booking-1")
            .values(stop_reason=StopReason.NOT_STARTED)
        )
    assert post(served, run_id)["num_searched"] == 2 * (TASKS - 1)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"detectors": "older"}, 422),
        ({"split": "test"}, 422),
        ({"step": -1}, 422),
        ({"steps": 1}, 422),
        ({"step": 7}, 409),
        ({"split": "train"}, 409),
    ],
)
def test_a_search_of_nothing_is_refused(
    served: Served, run_id: str, body: dict[str, object], status: int
) -> None:
    assert post(served, run_id, status=status, **body)["status"] == status


def test_too_many_rollouts_a_busy_service_and_strangers_are_refused(
    served: Served, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served.client(served.stranger_key) as stranger:
        path = f"/v1/runs/{run_id}/patterns/searches"
        assert stranger.post(path, json={"detectors": "present"}).status_code == 404
        assert stranger.get(path).status_code == 404
    monkeypatch.setattr(process, "WAIT_S", 0.01)
    with process._turn:
        assert post(served, run_id, status=503)["code"] == "rescoring_busy"
    monkeypatch.setattr(search, "MAX_ROLLOUTS", 5)
    assert "more than 5 rollouts there" in post(served, run_id, status=409)["detail"]
