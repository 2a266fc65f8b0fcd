"""What each way of sampling draws, over real tasks of unequal environments."""

from __future__ import annotations

from collections import Counter

import pytest

from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.spec.data import CurriculumSpec
from trainer.errors import DataError
from trainer.inputs.tasks.sampler import UNSAMPLED_AFTER, TaskSampler
from trainer.inputs.tasks.sampling import PromptSampling

SIZES = {"booking": 5, "github": 15, "outlook": 30}
TASKS = minifleet_tasks(tuple(SIZES), "train", SIZES, 0)


def per_env(sampler: TaskSampler, steps: int) -> list[Counter[str]]:
    return [Counter(task.env_key for task in sampler.next_step()) for _ in range(steps)]


def test_proportional_sampling_meets_every_task_once_per_epoch() -> None:
    sampler = TaskSampler(TASKS, 10, 0, PromptSampling(mode="proportional"))
    assert per_env(sampler, 2) == [{"booking": 1, "github": 3, "outlook": 6}] * 2
    sampler = TaskSampler(TASKS, 10, 0, PromptSampling(mode="proportional"))
    for _ in range(3):
        keys = [task.key for _ in range(5) for task in sampler.next_step()]
        assert sorted(keys) == sorted(task.key for task in TASKS)


def test_hybrid_sampling_gives_everyone_a_minimum_and_the_rest_by_size() -> None:
    steps = per_env(
        TaskSampler(TASKS, 12, 0, PromptSampling(mode="hybrid", min_samples_per_env=2)), 10
    )
    assert all(min(step.values()) >= 2 for step in steps)
    total = sum(steps, Counter[str]())
    assert total == {"booking": 20 + 6, "github": 20 + 18, "outlook": 20 + 36}


def test_a_pool_that_runs_out_begins_anew_and_ends_nobody_elses_epoch() -> None:
    sampler = TaskSampler(TASKS, 12, 0, PromptSampling(mode="hybrid", min_samples_per_env=4))
    drawn: Counter[str] = Counter()
    for _ in range(10):
        drawn.update(task.key for task in sampler.next_step())
    counts = {key: {drawn[t.key] for t in TASKS if t.env_key == key} for key in SIZES}
    assert counts == {"booking": {8}, "github": {2, 3}, "outlook": {1, 2}}
    metrics = sampler.metrics()
    assert metrics["data/booking/epoch"] == 8.0
    assert metrics["data/github/epoch"] == pytest.approx(40 / 15)
    assert metrics["trainer/epoch"] == pytest.approx(120 / 50)


def test_a_minimum_above_an_environments_tasks_takes_all_of_them() -> None:
    steps = per_env(
        TaskSampler(TASKS, 20, 0, PromptSampling(mode="hybrid", min_samples_per_env=6)), 5
    )
    assert {step["booking"] for step in steps} == {5}


def test_more_environments_than_prompts_take_turns() -> None:
    envs = ("booking", "github", "outlook", "reddit", "ticketmaster")
    tasks = minifleet_tasks(envs, "train", 20, 0)
    steps = per_env(TaskSampler(tasks, 2, 0, PromptSampling(mode="hybrid")), 5)
    assert sum(steps, Counter[str]()) == dict.fromkeys(envs, 2)


def test_balanced_sampling_refuses_an_environment_too_small_for_its_share() -> None:
    with pytest.raises(DataError, match="booking: fewer than 6 tasks"):
        TaskSampler(TASKS, 18, 0)
    sampler = TaskSampler(TASKS, 18, 0, PromptSampling(curriculum=CurriculumSpec()))
    assert max(step["booking"] for step in per_env(sampler, 5)) == 5


def test_coverage_counts_each_task_once() -> None:
    sampler = TaskSampler(TASKS, 9, 0)
    assert sampler.metrics()["data/coverage"] == 0.0
    sampler.next_step()
    assert sampler.metrics() == {
        "data/booking/coverage": 3 / 5,
        "data/booking/epoch": 3 / 5,
        "data/github/coverage": 3 / 15,
        "data/github/epoch": 3 / 15,
        "data/outlook/coverage": 3 / 30,
        "data/outlook/epoch": 3 / 30,
        "data/coverage": 9 / 50,
        "trainer/epoch": 9 / 50,
    }
    sampler.next_step()
    assert sampler.metrics()["data/booking/coverage"] == 1.0
    assert sampler.metrics()["data/coverage"] == (5 + 6 + 6) / 50


def test_an_environment_never_sampled_is_named_once() -> None:
    tasks = minifleet_tasks(("booking", "github"), "train", {"booking": 1, "github": 99}, 0)
    sampler = TaskSampler(tasks, 1, 0, PromptSampling(mode="proportional"))
    seen = []
    for step in range(1, UNSAMPLED_AFTER + 5):
        sampler.next_step()
        seen.append(sampler.observe(step, []).unsampled)
    assert seen == [()] * (UNSAMPLED_AFTER - 1) + [("booking",)] + [()] * 4
    sampler = TaskSampler(tasks, 2, 0, PromptSampling(mode="hybrid"))
    for step in range(1, 2 * UNSAMPLED_AFTER):
        sampler.next_step()
        assert sampler.observe(step, []).unsampled == ()
