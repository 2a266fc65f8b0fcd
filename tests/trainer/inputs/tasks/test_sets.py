"""Which tasks the kinds of run take, generated or of a dataset."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.disk import DiskStore
from hillclimb.spec.run import RunSpec
from tests.trainer.fixtures.short_run import short_spec
from tests.trainer.inputs.tasks.test_dataset import ROWS, SPLITS, TRAIN, register
from tests.trainer.jobs.validate.runs import Validation
from trainer.errors import DataError
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
