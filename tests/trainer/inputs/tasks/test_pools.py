"""One environment's tasks: complete per epoch, and restored at any position without replay."""

from __future__ import annotations

import json

import pytest
from pydantic import JsonValue

from hillclimb.environment.task import Task
from tests.trainer.fixtures.scripted import a_task
from trainer.errors import CheckpointError
from trainer.inputs.tasks.pools import TaskPool

TASKS = [a_task(f"t{index}") for index in range(7)]


def keys(drawn: list[Task]) -> list[str]:
    return [task.key for task in drawn]


def test_every_epoch_holds_every_task_once_in_its_own_order() -> None:
    pool = TaskPool("counting", TASKS, seed=0)
    epochs = [keys(pool.draw(7)) for _ in range(3)]
    assert all(sorted(epoch) == [task.key for task in TASKS] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("count", range(1, 8))
def test_no_draw_holds_a_task_twice_and_all_are_drawn_equally_often(count: int) -> None:
    pool = TaskPool("counting", TASKS, seed=0)
    drawn = [keys(pool.draw(count)) for _ in range(21)]
    assert all(len(set(draw)) == count for draw in drawn)
    everything = [key for draw in drawn for key in draw]
    assert {everything.count(task.key) for task in TASKS} == {3 * count}
    assert (pool.num_drawn, pool.num_covered) == (21 * count, 7)


def test_what_was_drawn_is_counted() -> None:
    pool = TaskPool("counting", TASKS, seed=0)
    assert (pool.num_drawn, pool.num_covered) == (0, 0)
    pool.draw(5)
    assert (pool.num_drawn, pool.num_covered) == (5, 5)
    pool.draw(5)
    assert (pool.num_drawn, pool.num_covered) == (10, 7)


@pytest.mark.parametrize("counts", [(), (3,), (7,), (3, 4), (6, 6, 6), (5, 5, 5, 5, 5), (2,) * 30])
def test_a_restored_pool_goes_on_with_the_exact_next_task(counts: tuple[int, ...]) -> None:
    pool = TaskPool("counting", TASKS, seed=4)
    for count in counts:
        pool.draw(count)
    resumed = TaskPool("counting", TASKS, seed=4)
    resumed.restore(json.loads(json.dumps(pool.state())))
    assert resumed.state() == pool.state()
    for count in (1, 5, 6, 7, 2, 4):
        assert resumed.draw(count) == pool.draw(count)
    assert (resumed.num_drawn, resumed.num_covered) == (pool.num_drawn, pool.num_covered)


def test_a_position_after_a_billion_epochs_is_restored_without_replay() -> None:
    pool = TaskPool("counting", TASKS, seed=4)
    pool.restore({"epoch": 10**9, "position": 3, "late": [2, 5]})
    assert pool.num_drawn == 7 * (10**9 - 1) + 3
    assert keys(pool.draw(4))[-2:] in (["t2", "t5"], ["t5", "t2"])


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"epoch": -1, "position": 0, "late": []},
        {"epoch": 1, "position": 8, "late": []},
        {"epoch": 0, "position": 1, "late": []},
        {"epoch": 1, "position": 1, "late": [7]},
        {"epoch": 1, "position": 1, "late": [1, 1]},
        {"epoch": 1, "position": 1, "late": ["1"]},
        {"epoch": 1.5, "position": 1, "late": []},
    ],
    ids=str,
)
def test_a_malformed_state_is_refused(state: JsonValue) -> None:
    with pytest.raises(CheckpointError, match="malformed"):
        TaskPool("counting", TASKS, seed=4).restore(state)
