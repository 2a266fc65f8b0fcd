"""`/v1/runs/{id}/tokens`: from the trainer's files to the answer, and what has no answer."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

import api.results.artifacts.rollouts.tokens as reader
from api.tables import Run
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import run_key, token_values_file, vocabulary_file
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.hillclimb.stats.trajectories.stored_tokens import (
    learned,
    not_learned,
    store_trajectories,
    store_values,
    store_vocabulary,
    trajectory,
)

__all__ = ["blobs", "served", "story", "story_url"]

NO_FILE = "not in the store: they were not uploaded yet, or deleted"


def rollout(task: int, *, step: int = 1, split: str = "train", decoding: str = "train") -> str:
    return f"1/{step}/{split}/{decoding}/booking/eval/t/{task}/0"


@pytest.fixture
def run_id(story: Story, blobs: DiskStore) -> str:
    """A run with one step over four tasks and one evaluation, whose rollouts share a file."""
    run_id = story.running()
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    story.push(run_id, story.evaluation(run_id, 1, {"booking": 0.5}, tasks=4))
    store_trajectories(blobs, run_id, [trajectory(f"booking-{task}") for task in range(4)])
    lines = [learned(rollout(0)), not_learned(rollout(1)), learned(rollout(2), entropies=None)]
    left_out = learned(rollout(3), state="left_out", gaps=None, entropies=None)
    store_values(blobs, run_id, [*lines, left_out])
    store_vocabulary(blobs, run_id)
    return run_id


def read(served: Served, run_id: str, rollout_id: str, **query: Any) -> dict[str, Any]:
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/tokens/{rollout_id}", params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def test_a_token_comes_with_all_that_is_known_of_it(served: Served, run_id: str) -> None:
    page = read(served, run_id, rollout(0))
    assert page["num_tokens"] == 8
    assert page["learner"] == {
        "state": "learned",
        "sentence": "The learner scored the drawn tokens in step 1, which began with weights of"
        " version 4, after 1 update of the step.",
        "version": 4,
        "num_updates": 1,
        "advantage": 0.5,
    }
    third, fourth = page["data"][2:4]
    assert third == {
        "position": 2,
        "token_id": 1,
        "text": "ca",
        "bytes_hex": None,
        "turn": 1,
        "is_drawn": True,
        "engine_logprob": -0.5,
        "learner_logprob": 0.0,
        "gap": 0.5,
        "entropy": 1.5,
        "weight_version": 3,
    }
    assert (fourth["text"], fourth["bytes_hex"], fourth["learner_logprob"]) == (None, "c3", -1.25)
    undrawn = page["data"][1]
    assert undrawn["text"] == " Hi"
    names = ("engine_logprob", "learner_logprob", "gap", "entropy", "weight_version")
    assert [undrawn[name] for name in names] == [None] * 5


def test_the_largest_gaps_and_the_turns_are_of_the_whole_rollout(
    served: Served, run_id: str
) -> None:
    page = read(served, run_id, rollout(0), turn=2, limit=1)
    assert [each["position"] for each in page["largest_gaps"]] == [2, 3, 6, 7]
    assert [(each["turn"], each["num_tokens"], each["num_drawn"]) for each in page["turns"]] == [
        (0, 2, 0),
        (1, 4, 2),
        (2, 2, 2),
    ]
    assert page["turns"][1]["mean_abs_gap"] == 0.375


def test_pages_follow_one_another_without_a_gap(served: Served, run_id: str) -> None:
    positions, start = [], 0
    while start is not None:
        page = read(served, run_id, rollout(0), start=start, limit=3)
        positions.append([each["position"] for each in page["data"]])
        start = page["next_start"]
    assert positions == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_pages_of_a_turn_stay_within_it(served: Served, run_id: str) -> None:
    first = read(served, run_id, rollout(0), turn=1, limit=3)
    assert [each["position"] for each in first["data"]] == [2, 3, 4]
    second = read(served, run_id, rollout(0), turn=1, start=first["next_start"], limit=3)
    assert ([each["position"] for each in second["data"]], second["next_start"]) == ([5], None)
    assert read(served, run_id, rollout(0), turn=9)["data"] == []
    assert read(served, run_id, rollout(0), start=8)["data"] == []


def test_a_rollout_without_values_says_why_and_has_the_engines(served: Served, run_id: str) -> None:
    for task, state, words in (
        (1, "not_learned", "took no gradient"),
        (3, "left_out", "the file of step 1 was full"),
    ):
        page = read(served, run_id, rollout(task))
        assert page["learner"]["state"] == state
        assert words in page["learner"]["sentence"]
        assert page["largest_gaps"] == []
        token = page["data"][2]
        assert (token["engine_logprob"], token["gap"], token["entropy"]) == (-0.5, None, None)


def test_a_server_without_entropies_is_named(served: Served, run_id: str) -> None:
    page = read(served, run_id, rollout(2))
    assert "A Tinker server has the learner" in page["learner"]["sentence"]
    assert (page["data"][2]["gap"], page["data"][2]["entropy"]) == (0.5, None)


def forget_values(blobs: DiskStore, run_id: str) -> None:
    blobs.delete_prefix(run_key(run_id, token_values_file(1, "step")))


def test_without_a_file_the_reason_is_that_of_the_rollout(
    story: Story, served: Served, blobs: DiskStore, run_id: str
) -> None:
    forget_values(blobs, run_id)
    assert NO_FILE in read(served, run_id, rollout(0))["learner"]["sentence"]
    of_eval = read(served, run_id, rollout(0, split="eval", decoding="sampled"))
    assert "never scores rollouts of an evaluation" in of_eval["learner"]["sentence"]
    for learner, words in (
        ({"store_token_values": False}, "learner.store_token_values: false"),
        ({}, "of before trainers stored"),
    ):
        with story.database.transaction() as session:
            run = session.get_one(Run, run_id)
            run.spec = run.spec | {"learner": learner}
        page = read(served, run_id, rollout(0))
        assert words in page["learner"]["sentence"]
        assert page["learner"]["state"] == "not_stored"


def test_a_probe_has_no_learner(story: Story, served: Served, blobs: DiskStore) -> None:
    run_id = story.running(spec().model_copy(update={"kind": "probe"}))
    story.push(run_id, story.probed(run_id, {"booking": 4}))
    store_trajectories(blobs, run_id, [trajectory()])
    page = read(served, run_id, "1/0/train/probe/booking/eval/t/0/0")
    assert "In a run of kind probe no learner scores rollouts" in page["learner"]["sentence"]
    assert page["has_texts"] is False
    assert {each["text"] for each in page["data"]} == {None}


@pytest.mark.parametrize(
    "data",
    [
        b"no gzip",
        gzip.compress(b"no json"),
        gzip.compress(b""),
        gzip.compress(learned("another").encode()),
        gzip.compress(learned(rollout(0), gaps="ADgA").encode()),
        gzip.compress(learned(rollout(0)).encode())[:-9],
    ],
    ids=["no gzip", "no json", "too short", "another rollout", "too few numbers", "torn"],
)
def test_a_damaged_file_costs_the_values_alone(
    served: Served, blobs: DiskStore, run_id: str, data: bytes
) -> None:
    blobs.put(run_key(run_id, token_values_file(1, "step")), data)
    page = read(served, run_id, rollout(0))
    assert page["learner"]["state"] == "not_stored"
    assert "is damaged" in page["learner"]["sentence"]
    assert page["data"][2]["engine_logprob"] == -0.5


def test_a_file_is_read_up_to_the_bound(
    served: Served, blobs: DiskStore, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{learned(rollout(0))}\n".encode()
    blobs.put(run_key(run_id, token_values_file(1, "step")), gzip.compress(line))
    blobs.delete_prefix(run_key(run_id, vocabulary_file(1)))
    monkeypatch.setattr(reader, "MAX_FILE_BYTES", len(line))
    assert read(served, run_id, rollout(0))["learner"]["state"] == "learned"
    monkeypatch.setattr(reader, "MAX_FILE_BYTES", len(line) - 1)
    assert read(served, run_id, rollout(0))["learner"]["state"] == "not_stored"


@pytest.mark.parametrize("entries", [[" Hi", [300]], [" Hi", 5], {"a": 1}, [" Hi", None]])
def test_a_damaged_vocabulary_costs_the_texts_alone(
    served: Served, blobs: DiskStore, run_id: str, entries: object
) -> None:
    store_vocabulary(blobs, run_id, entries)
    page = read(served, run_id, rollout(0))
    assert page["has_texts"] is False
    assert page["data"][2]["gap"] == 0.5


def test_a_trajectory_whose_mask_does_not_fit_is_damaged(
    served: Served, blobs: DiskStore, run_id: str
) -> None:
    store_trajectories(blobs, run_id, [trajectory(action_mask=[1, 1])])
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/tokens/{rollout(0)}")
    assert (answer.status_code, answer.json()["code"]) == (404, "artifact_not_found")


def test_forged_ids_find_nothing(served: Served, blobs: DiskStore, run_id: str) -> None:
    with served.client() as client:
        for path in (
            f"{run_id}/tokens/nobody",
            f"{run_id}/tokens/{rollout(0)}/tokens",
            f"{run_id}/tokens/..%2F..%2F..%2Fetc%2Fpasswd",
            f"run_no/tokens/{rollout(0)}",
        ):
            assert client.get(f"/v1/runs/{path}").status_code == 404, path
        assert client.get(f"/v1/runs/{run_id}/tokens/{rollout(0)}%00").status_code == 400
        for query in ({"turn": -1}, {"start": -1}, {"limit": 0}, {"limit": 2001}, {"step": 1}):
            answer = client.get(f"/v1/runs/{run_id}/tokens/{rollout(0)}", params=query)
            assert answer.status_code == 422, query


def test_the_path_of_a_file_is_the_services_own(
    story: Story, served: Served, blobs: DiskStore, run_id: str
) -> None:
    """A trainer that names another run's file as its own gets nothing of it."""
    other = story.running()
    step = story.step(other, 1, {"booking": 0.5})
    stolen = f"../../{run_id}/attempt-1/trajectories/step.jsonl.gz"
    rows = [row.model_copy(update={"trajectory": stolen}) for row in step.outcomes]
    story.push(other, step.model_copy(update={"outcomes": tuple(rows)}))
    with served.client() as client:
        answer = client.get(f"/v1/runs/{other}/tokens/{rollout(0)}")
    assert (answer.status_code, answer.json()["code"]) == (404, "artifact_not_found")


def test_another_projects_tokens_do_not_exist(served: Served, run_id: str) -> None:
    path = f"/v1/runs/{run_id}/tokens/{rollout(0)}"
    with served.client(served.stranger_key) as stranger, served.browser() as nobody:
        foreign, anonymous = stranger.get(path), nobody.get(path)
    assert (foreign.status_code, foreign.json()["code"]) == (404, "run_not_found")
    assert anonymous.status_code == 401
