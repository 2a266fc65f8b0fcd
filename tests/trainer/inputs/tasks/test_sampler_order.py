"""The tasks that earlier versions drew are drawn still."""

from __future__ import annotations

import hashlib

import pytest

from hillclimb.minifleet.tasks import minifleet_tasks
from trainer.inputs.tasks.sampler import TaskSampler

TASKS = minifleet_tasks(("booking", "github", "outlook"), "train", 10, 0)

RECORDED = [
    (8, 0, "8a63a3af302806ca3d5f8a29a77d2496029fbf5357449a509ddd3d98ec956062"),
    (7, 3, "89878c5eb912ee7cff06f4ff68e755e683cfb7a4e2c806832ba500d66cf50078"),
    (9, 1, "e7464f663e5c2f2937bda5c1e24fccf6c74837af3485b2ab87a328c9661f426c"),
    (20, 5, "10edd7867161c406580c66d1767648ad281b184d7142de5268f5129c43821c39"),
]
"""Prompts per step, seed, SHA-256 of the keys of 200 steps as drawn before there were modes."""


@pytest.mark.parametrize(("prompts", "seed", "digest"), RECORDED)
def test_balanced_sampling_draws_the_recorded_order(prompts: int, seed: int, digest: str) -> None:
    sampler = TaskSampler(TASKS, prompts, seed)
    keys = [task.key for _ in range(200) for task in sampler.next_step()]
    assert hashlib.sha256("\n".join(keys).encode()).hexdigest() == digest
