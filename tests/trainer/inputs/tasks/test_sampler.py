"""The order of training tasks: balanced, complete per epoch, and resumable."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from hillclimb.minifleet.tasks import minifleet_tasks
from trainer.errors import CheckpointError, DataError
from trainer.inputs.tasks.sampler import TaskSampler

TASKS = minifleet_tasks(("booking", "github", "outlook"), "train", 10, 0)


def test_each_step_is_balanced_and_the_remainder_goes_round() -> None:
    sampler = TaskSampler(TASKS, 8, seed=0)
    total: Counter[str] = Counter()
    for _ in range(3):
        step = Counter(task.env_key for task in sampler.next_step())
        assert sum(step.values()) == 8
        assert set(step.values()) == {2, 3}
        total += step
    assert set(total.values()) == {8}


def test_an_epoch_draws_every_task_once_and_the_next_in_another_order() -> None:
    sampler = TaskSampler(TASKS, 6, seed=0)
    epochs = [[t.key for _ in range(5) for t in sampler.next_step()] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(task.key for task in TASKS)
    assert epochs[0] != epochs[1]


def test_a_step_across_an_epoch_border_has_no_task_twice() -> None:
    sampler = TaskSampler(TASKS, 9, seed=0)
    drawn: Counter[str] = Counter()
    for _ in range(50):
        step = [task.key for task in sampler.next_step()]
        assert len(set(step)) == 9
        drawn.update(step)
    assert set(drawn.values()) == {15}


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_resumed_sampler_continues_the_exact_order(steps: int) -> None:
    sampler = TaskSampler(TASKS, 7, seed=3)
    for _ in range(steps):
        sampler.next_step()
    state = json.loads(json.dumps(sampler.state()))
    resumed = TaskSampler.from_state(TASKS, state, prompts_per_step=7, seed=3)
    for _ in range(20):
        assert resumed.next_step() == sampler.next_step()


def test_the_seed_changes_the_order() -> None:
    assert TaskSampler(TASKS, 9, seed=1).next_step() != TaskSampler(TASKS, 9, seed=2).next_step()


def test_state_of_other_tasks_or_of_another_shape_is_refused() -> None:
    state = TaskSampler(TASKS, 7, seed=3).state()
    with pytest.raises(CheckpointError, match="another set"):
        TaskSampler.from_state(TASKS[:-1], state, prompts_per_step=7, seed=3)
    with pytest.raises(CheckpointError, match="malformed"):
        TaskSampler.from_state(TASKS, {**state, "step": "1"}, prompts_per_step=7, seed=3)
    with pytest.raises(CheckpointError, match=r"set schedule\.train_batch_size to 7"):
        TaskSampler.from_state(TASKS, state, prompts_per_step=14, seed=3)
    with pytest.raises(CheckpointError, match=r"set data\.seed to 3 \(4 asked for\)"):
        TaskSampler.from_state(TASKS, state, prompts_per_step=7, seed=4)


def test_empty_repeated_and_too_few_tasks_are_refused() -> None:
    for tasks, size in (((), 1), (TASKS, 0), (TASKS + TASKS[:1], 3), (TASKS, 31)):
        with pytest.raises(DataError):
            TaskSampler(tasks, size, seed=0)
