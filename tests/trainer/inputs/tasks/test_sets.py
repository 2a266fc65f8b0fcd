"""Which tasks the kinds of run take, generated or of a dataset."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.events import EvalCompleted, StepCompleted
from hillclimb.spec.run import RunSpec
from tests.trainer.fixtures.short_run import ShortRun, short_spec
from tests.trainer.inputs.tasks.test_dataset import ROWS, SPLITS, TRAIN, register
from tests.trainer.jobs.validate.runs import Validation
from trainer.errors import DataError, SpecError
from trainer.inputs.tasks.sets import load_tasks, some_train_tasks


def a_spec(**data: Any) -> RunSpec:
    return short_spec(Path("/no/model"), data=data)


def test_some_generated_tasks_are_the_first_of_all(tmp_path: Path) -> None:
    spec, store = a_spec(train_tasks_by_env={"github": 3}), DiskStore(tmp_path)
    some = some_train_tasks(spec, store, 5)
    assert Counter(task.env_key for task in some) == {"booking": 5, "github": 3}
    every = {task.key for task in load_tasks(spec, store).train}
    assert {task.key for task in some} <= every


def test_some_tasks_of_a_dataset_are_drawn_by_its_seed(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    reference = register(store, ROWS, SPLITS)
    spec = a_spec()

    def drawn(seed: int, per_env: int) -> tuple[str, ...]:
        data = spec.data.model_copy(update={"dataset": reference, "seed": seed})
        seeded = spec.model_copy(update={"data": data})
        return tuple(task.key for task in some_train_tasks(seeded, store, per_env))

    assert set(drawn(0, 9)) == {task.key for task in TRAIN}
    assert len({drawn(seed, 1) for seed in range(12)}) > 1
    assert drawn(3, 2) == drawn(3, 2)
    only_eval = register(store, ROWS, dict.fromkeys(SPLITS, "eval"))
    data = spec.data.model_copy(update={"dataset": only_eval})
    with pytest.raises(DataError, match="has no training task"):
        some_train_tasks(spec.model_copy(update={"data": data}), store, 2)


async def test_a_dataset_is_validated_with_both_its_splits(tmp_path: Path) -> None:
    run = Validation(tmp_path, tasks_per_env=None)
    reference = register(run.store, ROWS, SPLITS)
    data = run.spec.data.model_copy(update={"dataset": reference})
    run.spec = run.spec.model_copy(update={"data": data})
    found = await run.run()
    assert found.summary.verdicts == {"valid": len(SPLITS)}
    assert {row.task_key for row in run.rows()} == set(SPLITS)


def test_a_limit_draws_the_same_tasks_and_more_of_them(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    reference = register(store, ROWS, SPLITS)
    spec = a_spec(max_tasks=2)

    def drawn(max_tasks: int | None, seed: int = 0) -> list[str]:
        update = {"dataset": reference, "max_tasks": max_tasks, "seed": seed}
        data = spec.data.model_copy(update=update)
        tasks = load_tasks(spec.model_copy(update={"data": data}), store)
        assert len(tasks.eval) == 3, "eval tasks stay"
        return [task.key for task in tasks.train]

    sizes = [drawn(limit) for limit in (2, 4, 5, None)]
    assert [len(keys) for keys in sizes] == [2, 4, 5, 6]
    assert all(set(less) < set(more) for less, more in pairwise(sizes))
    assert Counter(key.split("/")[0] for key in sizes[1]) == {"booking": 2, "github": 2}
    assert len({tuple(drawn(2, seed)) for seed in range(9)}) > 1
    with pytest.raises(DataError, match="smaller than the number of environments"):
        drawn(1)


def test_a_limit_cuts_generated_tasks_in_proportion(tmp_path: Path) -> None:
    spec = a_spec(max_tasks=4, train_tasks_by_env={"github": 10})
    tasks = load_tasks(spec, DiskStore(tmp_path))
    assert Counter(task.env_key for task in tasks.train) == {"booking": 3, "github": 1}
    every = load_tasks(a_spec(train_tasks_by_env={"github": 10}), DiskStore(tmp_path))
    assert {task.key for task in tasks.train} < {task.key for task in every.train}
    assert tasks.eval == every.eval


def test_a_modality_takes_its_own_tasks_of_a_mixed_dataset(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    images = [dict(row, task_modality="computer_use") for row in ROWS[:2]]
    reference = register(store, [*images, *ROWS[2:]], SPLITS)
    spec = a_spec()
    data = spec.data.model_copy(update={"dataset": reference})
    with_environment = spec.environment.model_copy(update={"provider": "fleet"})
    mixed = spec.model_copy(update={"data": data, "environment": with_environment})
    with pytest.raises(SpecError, match="computer_use"):
        load_tasks(mixed, store)
    text = data.model_copy(update={"modality": "tool_use"})
    tasks = load_tasks(mixed.model_copy(update={"data": text}), store)
    assert {task.key for task in tasks.train} == {task.key for task in TRAIN[2:]}


async def test_a_limited_run_trains_on_a_dataset_without_eval_tasks(tmp_path: Path) -> None:
    run = ShortRun(tmp_path)
    reference = register(run.store, ROWS, dict.fromkeys(SPLITS, "train"))
    data = run.spec.data.model_copy(update={"dataset": reference, "max_tasks": 4})
    run.spec = run.spec.model_copy(update={"data": data})
    await run.train()
    steps = run.events(StepCompleted)
    assert len(steps) == run.spec.schedule.total_steps
    assert not run.events(EvalCompleted)
    keys = {row.task_key for step in steps for row in step.outcomes}
    assert len(keys) == 4
