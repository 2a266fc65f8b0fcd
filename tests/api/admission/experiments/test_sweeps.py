"""Sweeps: grids and seeds whose runs are launched once, whoever asks."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import func, select

from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.admission.experiments.conftest import BASE, Call, Json, fail, train
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story

GRID: Json = {
    "base": BASE,
    "over": [{"key": "optimizer.lr", "values": [1e-4, 5e-4]}],
    "seeds": [0, 1, 2],
}


def num_runs(story: Story) -> int:
    with story.database.transaction() as session:
        return session.scalar(select(func.count()).select_from(Run)) or 0


def test_every_value_and_seed_is_a_run_with_its_cell(
    create: Call, call: Call, story: Story
) -> None:
    create()
    runs = call("POST", "/v0.2.4/sweep", GRID)["runs"]
    places = [(each["arm"], each["role"], each["seed"]) for each in runs]
    assert places == [
        *(("lr=0.0001", "baseline", seed) for seed in range(3)),
        *(("lr=0.0005", "variant", seed) for seed in range(3)),
    ]
    assert [each["settings"] for each in runs[2:4]] == [
        {"optimizer.lr": 1e-4},
        {"optimizer.lr": 5e-4},
    ]
    with story.database.transaction() as session:
        specs = [session.get_one(Run, each["run_id"]).spec for each in runs]
    assert [each["optimizer"]["lr"] for each in specs] == [1e-4] * 3 + [5e-4] * 3
    assert [each["schedule"]["seed"] for each in specs] == [0, 1, 2] * 2
    assert {each["data"]["seed"] for each in specs} == {0}
    assert specs[4]["name"] == "v0.2.4 lr-0.0005 s1"


def test_two_keys_make_a_grid_and_an_arm_without_keys_seed_replicates(
    create: Call, call: Call
) -> None:
    create()
    first = {"base": BASE, "arm": "start", "seeds": [4, 5]}
    assert [each["arm"] for each in call("POST", "/v0.2.4/sweep", first)["runs"]] == ["start"] * 2
    grid = GRID | {
        "over": [*GRID["over"], {"key": "data.train_tasks_per_env", "values": [50, 100]}],
        "seeds": [0],
    }
    runs = call("POST", "/v0.2.4/sweep", grid)["runs"]
    assert [each["role"] for each in runs] == ["baseline"] * 2 + ["variant"] * 4
    assert runs[3]["arm"] == "lr=0.0001, train_tasks_per_env=100"


def test_a_repetition_adopts_and_another_experiment_shares(
    create: Call, call: Call, story: Story
) -> None:
    create()
    first = call("POST", "/v0.2.4/sweep", GRID)
    assert call("POST", "/v0.2.4/sweep", GRID)["runs"] == first["runs"]
    more = call("POST", "/v0.2.4/sweep", GRID | {"seeds": [2, 3]})["runs"]
    assert [(each["arm"], each["seed"]) for each in more[6:]] == [
        ("lr=0.0001", 3),
        ("lr=0.0005", 3),
    ]
    create(key="v0.2.5")
    shared = call("POST", "/v0.2.5/sweep", GRID)["runs"]
    assert [each["run_id"] for each in shared] == [each["run_id"] for each in first["runs"]]
    assert num_runs(story) == 8


def test_sweeps_at_once_launch_nothing_twice(create: Call, served: Served, story: Story) -> None:
    create()
    create(key="other")
    statuses: list[int] = []

    def sweep(key: str) -> None:
        with served.client() as client:
            answer = client.post(f"/v1/experiments/{key}/sweep", json=GRID)
            statuses.append(answer.status_code)

    threads = [threading.Thread(target=sweep, args=(key,)) for key in ("v0.2.4", "other") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 6
    assert num_runs(story) == 6


def test_a_run_that_failed_is_launched_again_on_request(
    create: Call, call: Call, story: Story
) -> None:
    create()
    runs = call("POST", "/v0.2.4/sweep", GRID)["runs"]
    fail(story, runs[0]["run_id"], ReasonCode.CHECKPOINT_UNREADABLE)
    train(story, runs[1]["run_id"], 0.2, 0.2)
    fail(story, runs[3]["run_id"], ReasonCode.SPEC_REJECTED)
    same = call("POST", "/v0.2.4/sweep", GRID)["runs"]
    assert [each["state"] for each in same[:3]] == ["retryable", "done", "accepted"]
    assert same[3]["state"] == "blocked"
    again = call("POST", "/v0.2.4/sweep", GRID | {"retry": True})["runs"]
    assert [each["state"] for each in again[:4]] == ["accepted", "done", "accepted", "accepted"]
    assert again[0]["run_id"] != runs[0]["run_id"]
    assert again[1]["run_id"] == runs[1]["run_id"]


def test_a_refused_run_is_blocked_with_the_reason_and_the_others_go_on(
    create: Call, call: Call, story: Story
) -> None:
    create()
    grid = {
        "base": BASE,
        "over": [{"key": "data.dataset", "values": [None, "nowhere@1"]}],
    }
    runs = call("POST", "/v0.2.4/sweep", grid)["runs"]
    assert [each["state"] for each in runs] == ["accepted", "blocked"]
    assert "nowhere" in runs[1]["why"]
    assert num_runs(story) == 1


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"seeds": list(range(33))}, "seeds"),
        ({"seeds": list(range(32)), "over": [{"key": "a", "values": [1, 2, 3]}]}, "96 runs"),
        ({"seeds": [1, 1]}, "names something twice"),
        ({"over": [{"key": "optimizer.lr", "values": []}]}, "values"),
        ({"over": [{"key": "schedule.seed", "values": [1]}]}, "schedule.seed"),
        ({"over": [{"key": 'a."b', "values": [1]}]}, "quotes"),
        ({"over": [{"key": "optimizer.lrr", "values": [1]}]}, "optimizer/lrr"),
        ({"over": [{"key": "optimizer.lr", "values": ["fast"]}]}, "lr=fast, seed 0"),
        ({"over": [{"key": "optimizer.lr", "values": [1e-4, 0.0001]}]}, "the same run"),
        ({"over": [{"key": "name.x", "values": [1]}]}, "name is not a section"),
        ({"base": BASE | {"kind": "eval"}}, "a sweep trains"),
        ({"base": BASE | {"data": {"dataset": "fleet"}}}, "names no version"),
        ({"base": []}, "base"),
        ({"arm": "a\nb"}, "arm"),
        ({"role": "baseline"}, "one configuration is the baseline"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_in_a_sentence(
    create: Call, call: Call, story: Story, changes: Json, part: str
) -> None:
    create()
    assert part in str(call("POST", "/v0.2.4/sweep", GRID | changes, status=422))
    assert num_runs(story) == 0
    assert call("GET", "/v0.2.4")["runs"] == []
