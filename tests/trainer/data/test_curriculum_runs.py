"""Whole short runs under each way of drawing tasks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.scripted import CountingEnv, CountingProvider
from tests.trainer.short_run import ShortRun
from trainer.contract.events import StepCompleted
from trainer.types import Task

SIZES = {"train_tasks_per_env": 30, "train_tasks_by_env": {"booking": 10}}
BATCH = {"schedule": {"total_steps": 4, "train_batch_size": 4, "mini_batch_size": 4}}


class OnlyGithubTeaches(CountingProvider):
    """In github every other world is solved by doing nothing; in the others none is."""

    def make(self, task: Task) -> CountingEnv:
        is_easy = task.env_key == "github" and len(self.envs) % 2
        self.envs.append(CountingEnv(goal=0 if is_easy else -1))
        return self.envs[-1]


def drawn(run: ShortRun, attempt: int = 1) -> list[Counter[str]]:
    """Prompts of each environment in each step."""
    return [
        Counter({row.task_key: row.env_key for row in event.outcomes}.values())
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
