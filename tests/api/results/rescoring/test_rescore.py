"""Stored rollouts graded again, counted by hand: the stored grades are an older verifier's."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select, update

from api.results.rescoring import process, rescore
from api.tables import OutcomeRecord, RescoredOutcome, Run
from hillclimb.blobs.disk import DiskStore
from hillclimb.environment.task import Task
from hillclimb.minifleet.replay import verifier_version
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, rollout
from tests.hillclimb.minifleet.playing import without
from tests.hillclimb.minifleet.recording import Recording, record

TASKS = minifleet_tasks(["booking"], "eval", 12, seed=3)
FILE = "trajectories/step-{step:06d}-eval-sampled.jsonl.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An episode, and what was stored of its end."""

    recording: Recording
    stored: float | None
    stop: StopReason = StopReason.DONE
    status: OutcomeStatus = OutcomeStatus.GRADED
    answers: str | None = None
    """Replaces the first answer."""


def solved(task: Task) -> Recording:
    return asyncio.run(record(task))


def unfinished(task: Task) -> Recording:
    last = solved(task).calls[-1][0].name
    return asyncio.run(record(task, without(last)))


def six_ends() -> list[Played]:
    """Graded again: 1, 0, nothing, nothing, 0, 1."""
    missing, broken = OutcomeStatus.INFRA_ERROR, OutcomeStatus.UNGRADED
    return [
        Played(recording=solved(TASKS[0]), stored=0.0),
        Played(recording=unfinished(TASKS[1]), stored=0.0),
        Played(recording=solved(TASKS[2]), stored=1.0, answers="another answer"),
        Played(
            recording=unfinished(TASKS[3]),
            stored=None,
            status=missing,
            stop=StopReason.INFRA_ERROR,
        ),
        Played(recording=solved(TASKS[4]), stored=0.0, stop=StopReason.MAX_TURNS),
        Played(recording=solved(TASKS[5]), stored=None, status=broken),
    ]


def line_of(played: Played) -> dict[str, Any]:
    task = played.recording.task
    turns = [
        {
            "response": "<tool_call>",
            "tool_name": call.name,
            "tool_arguments": dict(call.arguments),
            "observation": played.answers if played.answers and not index else result.text,
            "is_error": result.is_error,
            "call_index": 0,
        }
        for index, (call, result) in enumerate(played.recording.calls)
    ]
    unread = {"response": "?", "tool_name": None, "tool_arguments": None}
    turns.insert(1, {**unread, "observation": "no call", "is_error": True, "call_index": 0})
    return {
        "task": {
            "key": task.key,
            "env_key": task.env_key,
            "prompt": task.prompt,
            "env_variables": dict(task.env_variables),
        },
        "turns": turns,
        "token_ids": [1, 2, 3],
        "action_mask": [0, 1, 1],
        "logprobs": [-0.5, -0.5],
        "weight_versions": [0, 0],
    }


def row_of(played: Played, number: int, step: int) -> OutcomeRow:
    is_graded = played.status is OutcomeStatus.GRADED
    return rollout("booking", number, passed=True, step=step).model_copy(
        update={
            "task_key": played.recording.task.key,
            "status": played.status,
            "score": played.stored,
            "reason": None if is_graded else "connect_timeout",
            "stop_reason": played.stop,
            "trajectory": FILE.format(step=step),
            "trajectory_line": number,
        }
    )


def evaluate(
    story: Story, blobs: DiskStore, run_id: str, step: int, episodes: list[Played]
) -> None:
    text = "".join(json.dumps(line_of(each)) + "\n" for each in episodes)
    key = f"runs/{run_id}/attempt-1/{FILE.format(step=step)}"
    blobs.put(key, gzip.compress(text.encode()))
    rows = tuple(row_of(each, number, step) for number, each in enumerate(episodes))
    event = story.evaluation(run_id, step, {})
    story.push(run_id, event.model_copy(update={"outcomes": rows}))


@pytest.fixture
def run_id(story: Story, blobs: DiskStore) -> str:
    run_id = story.running()
    evaluate(story, blobs, run_id, 0, six_ends())
    return run_id


def post(served: Served, run_id: str, **body: object) -> dict[str, Any]:
    with served.client() as client:
        response = client.post(f"/v1/runs/{run_id}/rescorings", json={"verifier": "present"} | body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def get(served: Served, path: str, **query: object) -> dict[str, Any]:
    with served.client() as client:
        response = client.get(path, params={name: str(value) for name, value in query.items()})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_every_end_of_a_rollout_is_graded_by_its_rule(
    served: Served, story: Story, run_id: str
) -> None:
    found = post(served, run_id)
    assert found["verifier"] == verifier_version()
    assert (found["num_rollouts"], found["num_graded"], found["num_changed"]) == (6, 4, 2)
    assert found["ungraded"] == {"connect_timeout": 1, "not_replayable: other_answer": 1}
    with story.database.transaction() as session:
        new = session.scalars(select(RescoredOutcome).order_by(RescoredOutcome.rollout_id)).all()
        old = session.scalars(select(OutcomeRecord).order_by(OutcomeRecord.rollout_id)).all()
    assert [each.score for each in new] == [1.0, 0.0, None, None, 0.0, 1.0]
    assert [each.status for each in new] == [
        "graded",
        "graded",
        "ungraded",
        "infra_error",
        "graded",
        "graded",
    ]
    assert [each.score for each in old] == [0.0, 0.0, 1.0, None, 0.0, None]
    assert new[1].reason is not None
    assert new[1].reason.startswith("missing:")


def test_rates_and_failures_follow_the_rescoring_that_is_asked_for(
    served: Served, run_id: str
) -> None:
    verifier = post(served, run_id)["verifier"]
    path = f"/v1/runs/{run_id}/evals"
    (rescored,) = get(served, path, verifier=verifier)["data"]
    assert (rescored["all"]["n"], rescored["all"]["passes"]) == (4, 2)
    assert (rescored["all"]["num_rollouts"], rescored["all"]["coverage"]) == (
        6,
        pytest.approx(4 / 6),
    )
    (stored,) = get(served, path)["data"]
    assert (stored["all"]["n"], stored["all"]["passes"]) == (4, 1)
    report = get(served, f"{path}/report", verifier=verifier)
    assert report["verifier"] == verifier
    failures = report["sampled"]["failures"]
    assert {name: each["after"] for name, each in failures.items()} == {
        "wrong_state": 1,
        "no_done": 1,
    }
    assert get(served, f"{path}/report")["sampled"]["failures"]["wrong_state"]["after"] == 2


def test_verdicts_under_either_grades(served: Served, story: Story, blobs: DiskStore) -> None:
    """An older verifier let nobody pass: twelve tasks, of which ten are solved at step 40."""
    run_id = story.running()
    before = [Played(recording=unfinished(task), stored=0.0) for task in TASKS]
    after = [Played(recording=solved(task), stored=0.0) for task in TASKS[:10]]
    evaluate(story, blobs, run_id, 0, before)
    evaluate(story, blobs, run_id, 40, [*after, *before[10:]])
    verifier = post(served, run_id)["verifier"]
    path = f"/v1/runs/{run_id}/evals/report"
    assert get(served, path)["sampled"]["verdict"] == "failing"
    sampled = get(served, path, verifier=verifier)["sampled"]
    assert (sampled["num_gained"], sampled["num_lost"], sampled["verdict"]) == (10, 0, "improved")
    assert sampled["p_value"] == 2 * 0.5**10
    query = {"a": f"{run_id}@0", "b": run_id}
    found = get(served, "/v1/compare", **query, verifier=verifier)["decodings"]["sampled"]
    assert len(found["gained"]) == 10
    assert found["gained"][0]["b_rollout"] is not None
    assert found["behaviour"]["b"]["all"]["tokens_of_passes"] == 120.0
    stored = get(served, "/v1/compare", **query)["decodings"]["sampled"]
    assert (stored["gained"], stored["behaviour"]["b"]["all"]["tokens_of_passes"]) == ([], None)


def test_one_step_may_be_rescored_and_again_with_the_same_result(
    served: Served, story: Story, blobs: DiskStore, run_id: str
) -> None:
    evaluate(story, blobs, run_id, 40, six_ends()[:2])
    first = post(served, run_id, step=40)
    assert (first["num_rollouts"], first["num_graded"]) == (2, 2)
    verifier = first["verifier"]
    rows = get(served, f"/v1/runs/{run_id}/evals", verifier=verifier)["data"]
    assert [row["step"] for row in rows] == [40]
    assert post(served, run_id, step=40)["num_rollouts"] == 2
    assert post(served, run_id)["num_rollouts"] == 8
    (listed,) = get(served, f"/v1/runs/{run_id}/rescorings")["data"]
    assert (listed["verifier"], listed["num_rollouts"]) == (verifier, 8)


def test_rollouts_without_their_file_are_not_replayable(
    served: Served, blobs: DiskStore, run_id: str
) -> None:
    key = f"runs/{run_id}/attempt-1/{FILE.format(step=0)}"
    blobs.put(key, blobs.get(key)[:-400])
    damaged = post(served, run_id)
    assert damaged["ungraded"]["not_replayable: no_trajectory"] >= 1
    blobs.delete_prefix(key)
    assert post(served, run_id)["ungraded"] == {
        "not_replayable: no_trajectory": 4,
        "connect_timeout": 1,
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"verifier": "older"}, 422),
        ({"verifier": "present", "split": "test"}, 422),
        ({"verifier": "present", "step": -1}, 422),
        ({"verifier": "present", "steps": 1}, 422),
        ({"verifier": "present", "step": 7}, 409),
        ({"verifier": "present", "split": "train"}, 409),
    ],
)
def test_a_rescoring_of_nothing_is_refused(
    served: Served, run_id: str, body: dict[str, object], status: int
) -> None:
    with served.client() as client:
        response = client.post(f"/v1/runs/{run_id}/rescorings", json=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"


def refusal(served: Served, run_id: str, status: int) -> str:
    with served.client() as client:
        url = f"/v1/runs/{run_id}/rescorings"
        response = client.post(url, json={"verifier": "present"})
    assert response.status_code == status, response.text
    detail: str = response.json()["detail"]
    return detail


@pytest.mark.parametrize(
    ("section", "changes", "words"),
    [
        ("environment", {"provider": "fleet"}, "reads the end state of an instance, which is gone"),
        ("prompt", {"style": "skyrl"}, "under prompt.style: skyrl the style decides"),
    ],
)
def test_worlds_that_cannot_be_replayed_are_named(
    served: Served,
    story: Story,
    run_id: str,
    section: str,
    changes: dict[str, str],
    words: str,
) -> None:
    with story.database.transaction() as session:
        spec = dict(session.get_one(Run, run_id).spec)
        spec[section] = {**spec[section], **changes}
        session.execute(update(Run).values(spec=spec))
    assert words in refusal(served, run_id, 409)


def test_too_many_rollouts_and_a_busy_service_are_refused(
    served: Served, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescore, "MAX_ROLLOUTS", 5)
    assert "more than 5 rollouts there: rescore one step" in refusal(served, run_id, 409)
    monkeypatch.setattr(rescore, "MAX_ROLLOUTS", 6)
    monkeypatch.setattr(process, "WAIT_S", 0.01)
    with process._turn:
        assert "try again in a minute" in refusal(served, run_id, 503)


def test_what_is_not_there_is_not_found(served: Served, run_id: str) -> None:
    unknown = {"verifier": "minifleet-000000000000"}
    with served.client() as client:
        for path in (f"/v1/runs/{run_id}/evals", f"/v1/runs/{run_id}/evals/report"):
            response = client.get(path, params=unknown)
            assert response.status_code == 404, response.text
            assert "was rescored by minifleet-000000000000" in response.json()["detail"]
        query = {"a": run_id, "b": run_id} | unknown
        assert client.get("/v1/compare", params=query).status_code == 404
        bad = client.get(f"/v1/runs/{run_id}/evals", params={"verifier": "ÄÖ"})
        assert bad.status_code == 422
        nowhere = client.post("/v1/runs/run_x/rescorings", json={"verifier": "present"})
        assert nowhere.status_code == 404
    with served.client(served.stranger_key) as stranger:
        path = f"/v1/runs/{run_id}/rescorings"
        assert stranger.get(path).status_code == 404
        assert stranger.post(path, json={"verifier": "present"}).status_code == 404
