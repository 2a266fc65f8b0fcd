"""Tasks of a registered dataset, as the trainer gets them from the blob store."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.disk import DiskStore
from hillclimb.datasets.format.files import SPLIT, TASKS, version_key
from hillclimb.datasets.format.rows import canonical_json
from hillclimb.datasets.format.stored import split_line
from hillclimb.datasets.format.table import is_minifleet_key
from hillclimb.datasets.prepare import PrepareOptions, prepare
from hillclimb.datasets.read.reading import Reading
from hillclimb.datasets.split.policies import PublishedPolicy
from hillclimb.minifleet.export import task_row
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.events import EvalCompleted, StepCompleted, TrainerStarted
from hillclimb.spec.data import DatasetRef
from tests.trainer.fixtures.short_run import ShortRun
from trainer.envs.minifleet import MinifleetProvider
from trainer.errors import DataError, SpecError
from trainer.inputs.tasks.dataset import dataset_tasks

TRAIN = minifleet_tasks(("booking", "github"), "train", 3, seed=1)
EVAL = minifleet_tasks(("booking", "github"), "eval", 2, seed=1, held_out_share=0.5)
ROWS: list[Any] = [task_row(task) for task in (*TRAIN, *EVAL)]
SPLITS = {task.key: "train" for task in TRAIN} | {task.key: "eval" for task in EVAL[1:]}


def register(store: DiskStore, rows: list[Any], splits: Mapping[str, Any]) -> DatasetRef:
    options = PrepareOptions(split=PublishedPolicy(splits=dict(splits)))
    now = datetime(2026, 3, 1, tzinfo=UTC)
    prepared = prepare(Reading().rows_of(rows), options, now=now)
    for name, lines in (
        (TASKS, map(canonical_json, prepared.rows)),
        (SPLIT, map(split_line, prepared.split)),
    ):
        packed = gzip.compress(b"".join(line + b"\n" for line in lines))
        store.put(version_key("dsv_1", name), packed)
    return DatasetRef(name="fleet", version=1, id="dsv_1", digest=prepared.digest)


def test_minifleet_tasks_come_back_with_what_the_dataset_says(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    said = {**ROWS[0], "prompt": "Other words."}
    reference = register(store, [*ROWS[1:], said], SPLITS)
    found = dataset_tasks(store, reference, ("github", "booking"), "minifleet")
    expected = (replace(TRAIN[0], prompt="Other words."), *TRAIN[1:])
    in_order = sorted(expected, key=lambda task: (task.env_key == "booking", task.key))
    assert found.train == tuple(in_order)
    left = {task.key for task in EVAL[1:]}
    assert {task.key for task in found.eval} == left, "the excluded task is in neither"
    only = dataset_tasks(store, reference, ("booking",), "minifleet")
    assert {task.env_key for task in (*only.train, *only.eval)} == {"booking"}


def test_tasks_of_other_providers_carry_what_their_environment_needs(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    row = {
        "key": "t1",
        "prompt": "Go.",
        "env_key": "wallst",
        "env_version": "v2",
        "data_key": "d",
        "verifier_code": "def verify(env): return 1",
        "metadata": {"tool_calls": []},
    }
    found = dataset_tasks(store, register(store, [row], {"t1": "train"}), ("wallst",), "fleet")
    (task,) = found.train
    assert (task.template, task.difficulty, task.held_out_template) == ("wallst", None, False)
    assert task.payload == {
        "env_variables": {},
        "env_version": "v2",
        "data_key": "d",
        "data_version": None,
        "verifier_code": "def verify(env): return 1",
        "task_modality": "tool_use",
        "metadata": {"tool_calls": []},
    }


def test_files_that_are_not_those_of_the_version_are_refused(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    reference = register(store, ROWS, SPLITS)
    envs = ("booking", "github")
    with pytest.raises(SpecError, match="submit the spec to the service"):
        dataset_tasks(store, DatasetRef(name="fleet"), envs, "minifleet")
    other = reference.model_copy(update={"digest": "0" * 64})
    with pytest.raises(DataError, match="is not the one in the spec"):
        dataset_tasks(store, other, envs, "minifleet")
    key = version_key("dsv_1", SPLIT)
    lines = gzip.decompress(store.get(key)).replace(b'"split":"eval"', b'"split":"train"')
    store.put(key, gzip.compress(lines))
    with pytest.raises(DataError, match="is not the one in the spec"):
        dataset_tasks(store, reference, envs, "minifleet")
    store.put(key, gzip.compress(lines)[:-9])
    with pytest.raises(DataError, match="is damaged"):
        dataset_tasks(store, reference, envs, "minifleet")
    store.delete_prefix(key)
    with pytest.raises(DataError, match="are gone"):
        dataset_tasks(store, reference, envs, "minifleet")


def test_the_keys_of_all_our_tasks_have_the_form_by_which_a_submission_knows_them() -> None:
    made = Reading().rows_of(ROWS)
    assert all(is_minifleet_key(row) for row in made)


def test_a_task_that_minifleet_does_not_have_is_named(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    key = "booking/train/x/000001"
    reference = register(store, [{**ROWS[0], "key": key}], {key: "eval"})
    with pytest.raises(DataError, match=f"{key!r} of booking is none that minifleet has"):
        dataset_tasks(store, reference, ("booking",), "minifleet")
    today = ROWS[0]["env_variables"]["CURRENT_DATE"]
    bare = {**ROWS[0], "env_variables": {"CURRENT_DATE": today}}
    reference = register(store, [bare], {bare["key"]: "eval"})
    with pytest.raises(DataError, match="has no LOGGED_IN_USER in its env_variables"):
        dataset_tasks(store, reference, ("booking",), "minifleet")


def test_a_task_whose_variables_are_not_those_of_its_world_is_refused(tmp_path: Path) -> None:
    """The model would be told another day or user than the world has, and be graded 0."""
    store = DiskStore(tmp_path)
    moved = [
        {**row, "env_variables": {**row["env_variables"], "CURRENT_DATE": "1999-12-31"}}
        for row in ROWS
        if row["env_key"] == "booking"
    ]
    reference = register(store, moved, dict.fromkeys((row["key"] for row in moved), "eval"))
    with pytest.raises(DataError) as refused:
        dataset_tasks(store, reference, ("booking",), "minifleet")
    first = min(row["key"] for row in moved)
    assert f"task {first!r} has CURRENT_DATE '1999-12-31' in its env_variables" in str(
        refused.value
    )
    assert f"({len(moved) - 1} more tasks of this dataset" in str(refused.value)
    more = {**ROWS[0], "env_variables": {**ROWS[0]["env_variables"], "TEAM": "red"}}
    reference = register(store, [more], {more["key"]: "eval"})
    (task,) = dataset_tasks(store, reference, (more["env_key"],), "minifleet").eval
    assert task.env_variables["TEAM"] == "red", "more than the world knows does no harm"


async def test_a_run_trains_and_measures_on_the_tasks_of_its_dataset(tmp_path: Path) -> None:
    reference = register(DiskStore(tmp_path / "blobs"), ROWS, SPLITS)
    data = {"dataset": json.loads(reference.model_dump_json()), "env_keys": ["booking", "github"]}
    run = ShortRun(
        tmp_path,
        data={**data, "train_tasks_per_env": 2000, "eval_tasks_per_env": 60},
        schedule={"total_steps": 1, "train_batch_size": 2, "mini_batch_size": 2},
        rollout={"n_samples_per_prompt": 2},
    )
    await run.train(provider=MinifleetProvider(env_keys=("booking", "github")))
    (started,) = run.events(TrainerStarted)
    assert (started.num_train_tasks, started.num_eval_tasks) == (6, 3)
    trained = {row.task_key for step in run.events(StepCompleted) for row in step.outcomes}
    assert trained <= {task.key for task in TRAIN}
    measured = {row.task_key for each in run.events(EvalCompleted) for row in each.outcomes}
    assert measured == {task.key for task in EVAL[1:]}
