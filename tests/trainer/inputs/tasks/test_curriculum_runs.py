"""Whole short runs under each way of drawing tasks."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from hillclimb.environment.task import Task
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.events import CurriculumReweighted, StepCompleted
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider
from tests.trainer.fixtures.short_run import UNEVALUATED, ShortRun
from trainer.errors import CheckpointError
from trainer.inputs.tasks.sampler import TaskSampler
from trainer.inputs.tasks.sampling import PromptSampling

SIZES = {"train_tasks_per_env": 30, "train_tasks_by_env": {"booking": 10}}
BATCH: dict[str, dict[str, Any]] = {
    "schedule": {"total_steps": 4, "train_batch_size": 4, "mini_batch_size": 4},
    "eval": UNEVALUATED,
}


class OnlyGithubTeaches(CountingProvider):
    """In github every other rollout of a task is solved by saying done; elsewhere none is."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[str] = Counter()

    def make(self, task: Task) -> CountingEnv:
        self.made[task.key] += 1
        is_easy = task.env_key == "github" and self.made[task.key] % 2
        return CountingEnv(goal=0 if is_easy else -1)


def drawn(run: ShortRun, attempt: int = 1) -> list[Counter[str]]:
    """Prompts of each environment in each step."""
    return [
        Counter({row.task_key: row.env_key for row in event.outcomes}.values())
        for event in run.events(StepCompleted, attempt)
    ]


def tasks_of(run: ShortRun, attempt: int = 1) -> list[list[str]]:
    """Tasks of each step, in order."""
    return [
        list(dict.fromkeys(row.task_key for row in event.outcomes))
        for event in run.events(StepCompleted, attempt)
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, [(2, 2)] * 4),
        ({"sampling": "proportional"}, [(1, 3)] * 4),
        ({"sampling": "hybrid"}, [(2, 2), (1, 3), (2, 2), (1, 3)]),
        ({"sampling": "hybrid", "min_samples_per_env": 2}, [(2, 2)] * 4),
    ],
    ids=str,
)
async def test_the_mode_decides_what_a_step_draws(
    tmp_path: Path, data: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    run = ShortRun(tmp_path, data={**SIZES, **data}, **BATCH)
    await run.train()
    assert [(step["booking"], step["github"]) for step in drawn(run)] == expected
    metrics = run.events(StepCompleted)[-1].metrics
    total = sum((step for step in map(Counter, drawn(run))), Counter[str]())
    assert metrics["data/booking/coverage"] == pytest.approx(total["booking"] / 10)
    assert metrics["data/github/epoch"] == pytest.approx(total["github"] / 30)
    assert metrics["trainer/epoch"] == pytest.approx(16 / 40)


EAGER: dict[str, dict[str, Any]] = {
    "data": {**SIZES, "sampling": "hybrid", "curriculum": {"interval": 1, "min_change": 0.0}},
    "schedule": {"total_steps": 6, "train_batch_size": 6, "mini_batch_size": 6},
    "rollout": {"n_samples_per_prompt": 8},
    "checkpoints": {"interval": 3},
    "eval": UNEVALUATED,
}


async def test_a_curriculum_shifts_prompts_as_its_journal_explains(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, **EAGER)
    await run.train(provider=OnlyGithubTeaches())
    changes = {event.step: event for event in run.events(CurriculumReweighted)}
    tasks = minifleet_tasks(("booking", "github"), "train", {"booking": 10, "github": 30}, 0)
    sampler = TaskSampler(tasks, 6, 0, PromptSampling.of(run.spec.data))
    for event in run.events(StepCompleted):
        expected = [task.key for task in sampler.next_step()]
        assert list(dict.fromkeys(row.task_key for row in event.outcomes)) == expected
        # No step draws a task twice here.
        by_task = groupby(event.outcomes, key=lambda row: row.task_key)
        groups = [list(group) for _, group in by_task]
        change = sampler.observe(event.step, groups).reweighting
        assert (change is None) == (event.step not in changes)
        if change is not None:
            told = changes[event.step]
            assert (told.old_shares, told.new_shares) == (change.old_shares, change.new_shares)
            assert (told.signals, told.reason) == (change.signals, change.reason)
        assert sampler.metrics().items() <= event.metrics.items()
    assert max(change.new_shares["github"] for change in changes.values()) > 0.8


@pytest.mark.long
async def test_a_run_resumed_under_a_curriculum_draws_what_it_would_have_drawn(
    tmp_path: Path,
) -> None:
    run = ShortRun(tmp_path, **EAGER)
    await run.train(provider=OnlyGithubTeaches())
    resume_from = f"runs/{run.run_id}/checkpoints/global_step_3/attempt-1"
    await run.train(2, resume_from=resume_from, provider=OnlyGithubTeaches())
    assert tasks_of(run, 2) == tasks_of(run)[3:]
    later = [event for event in run.events(CurriculumReweighted) if event.step > 3]
    again = run.events(CurriculumReweighted, 2)
    assert [event.new_shares for event in again] == [event.new_shares for event in later]
    assert again


async def test_a_checkpoint_of_another_way_of_sampling_is_refused(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, **BATCH)
    await run.train()
    resume_from = f"runs/{run.run_id}/checkpoints/global_step_4/attempt-1"
    other = ShortRun(tmp_path, data={"sampling": "hybrid"}, **BATCH)
    with pytest.raises(CheckpointError, match=r"data\.sampling = balanced: set it to that"):
        other.build(2, resume_from=resume_from)


@pytest.mark.invariant("an asynchronous run that resumes neither loses nor repeats a task")
async def test_a_run_that_draws_ahead_loses_and_repeats_no_task_when_it_resumes(
    tmp_path: Path,
) -> None:
    run = ShortRun(
        tmp_path,
        data={**SIZES, "sampling": "proportional"},
        schedule={**BATCH["schedule"], "total_steps": 8, "max_staleness_steps": 2},
        checkpoints={"interval": 4},
        eval=UNEVALUATED,
    )
    await run.train()
    resume_from = f"runs/{run.run_id}/checkpoints/global_step_4/attempt-1"
    await run.train(2, resume_from=resume_from)
    learned = [key for step in tasks_of(run)[:4] + tasks_of(run, 2) for key in step]
    assert len(learned) == len(set(learned)) == 8 * 4
