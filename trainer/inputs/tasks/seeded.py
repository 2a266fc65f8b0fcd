"""Seed tasks: one per seed, for environments without a dataset."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from hillclimb.environment.task import Task
from hillclimb.spec.environment.openenv import NUM_TRAIN_SEEDS
from hillclimb.spec.run import RunSpec


def seeded_train_tasks(spec: RunSpec) -> tuple[Task, ...]:
    """Return the training tasks: seeds from 0 on, of each environment as many as the spec says."""
    counts = spec.data.num_train_tasks()
    return tuple(
        _task(env_key, "train", seed, {})
        for env_key in spec.data.env_keys
        for seed in range(counts[env_key])
    )


def seeded_eval_tasks(spec: RunSpec) -> tuple[Task, ...]:
    """Return the eval tasks: seeds that no training task has, with the server's `eval_reset`."""
    servers, count = spec.environment.openenv, spec.data.eval_tasks_per_env
    return tuple(
        _task(env_key, "eval", seed, servers[env_key].eval_reset)
        for env_key in spec.data.env_keys
        for seed in range(NUM_TRAIN_SEEDS, NUM_TRAIN_SEEDS + count)
    )


def _task(env_key: str, split: str, seed: int, arguments: Mapping[str, JsonValue]) -> Task:
    return Task(
        key=f"{env_key}/{split}/{seed}",
        env_key=env_key,
        prompt="",
        template=env_key,
        difficulty=None,
        payload={"metadata": {"reset": {**arguments, "seed": seed}}},
    )
