"""The schedule of a run, fitted to the number of its training tasks."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.datasets.fit_schedule import fit_generated, fit_schedule
from hillclimb.spec.data import limited_counts
from tests.fixtures.factories import make_spec


def fitted(data: dict[str, Any], **schedule: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    spec = make_spec(data={"env_keys": ["booking", "github"], **data}, schedule=schedule)
    found = fit_generated(spec)
    assert fit_generated(found.spec).spec == found.spec, "a fitted spec is fitted"
    return found.spec.schedule.model_dump(), found.changes


def test_epochs_become_steps_rounded_up_and_replace_total_steps() -> None:
    batch = {"train_batch_size": 8, "mini_batch_size": 4}
    schedule, (change,) = fitted({"train_tasks_per_env": 10}, epochs=3, total_steps=5, **batch)
    assert (schedule["total_steps"], schedule["epochs"]) == (8, None)
    assert change == "schedule.total_steps is 8: 3 epochs of 20 training tasks, 8 a step."
    schedule, changes = fitted({"train_tasks_per_env": 10}, total_steps=5, **batch)
    assert (schedule["total_steps"], changes) == (5, ())


def test_a_batch_larger_than_the_limited_tasks_is_lowered_and_said() -> None:
    schedule, (change,) = fitted({"max_tasks": 6}, train_batch_size=20, mini_batch_size=5)
    assert (schedule["train_batch_size"], schedule["mini_batch_size"]) == (6, 3)
    assert "schedule.train_batch_size is 6 instead of 20, and mini_batch_size 3" in change
    uneven = {"train_tasks_by_env": {"booking": 1}, "max_tasks": 4}
    schedule, _ = fitted(uneven, train_batch_size=4, mini_batch_size=4)
    assert schedule["train_batch_size"] == 2, "balanced sampling needs equal shares"
    hybrid = uneven | {"sampling": "hybrid"}
    assert fitted(hybrid, train_batch_size=4, mini_batch_size=4)[0]["train_batch_size"] == 4


def test_a_batch_of_all_tasks_is_not_lowered_without_a_limit() -> None:
    with pytest.raises(ValueError, match="is larger than the number of training tasks"):
        fitted({"train_tasks_per_env": 4}, train_batch_size=20, mini_batch_size=5)


def test_a_dataset_is_fitted_to_the_tasks_that_are_counted() -> None:
    spec = make_spec(data={"dataset": "fleet"}, schedule={"epochs": 1.5})
    assert fit_generated(spec).spec == spec
    assert fit_schedule(spec, {"booking": 100}).spec.schedule.total_steps == 8
    probe = spec.model_copy(update={"kind": "probe"})
    assert fit_schedule(probe, {"booking": 100}).spec == probe


@pytest.mark.parametrize(
    ("counts", "limit", "expected"),
    [
        ({"a": 5, "b": 5}, None, {"a": 5, "b": 5}),
        ({"a": 5, "b": 5}, 10, {"a": 5, "b": 5}),
        ({"a": 1865, "b": 12}, 100, {"a": 98, "b": 2}),
        ({"a": 1865, "b": 1, "c": 0}, 2, {"a": 1, "b": 1, "c": 0}),
        ({"a": 3, "b": 3, "c": 3}, 7, {"a": 3, "b": 2, "c": 2}),
        ({}, 4, {}),
    ],
)
def test_a_limit_keeps_the_proportions_and_every_environment(
    counts: dict[str, int], limit: int | None, expected: dict[str, int]
) -> None:
    assert limited_counts(counts, limit) == expected


def test_a_limit_below_the_number_of_environments_is_refused() -> None:
    with pytest.raises(ValueError, match="smaller than the number of environments"):
        make_spec(data={"env_keys": ["booking", "github"], "max_tasks": 1})


def test_images_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"data.modality is of modality computer_use.*no images"):
        make_spec(data={"env_keys": ["booking"], "modality": "computer_use"})


def test_a_plain_model_name_gets_its_commit_and_others_a_sentence() -> None:
    for name in ("Qwen/Qwen3-8B", "hf:Qwen/Qwen3-8B"):
        source = make_spec(model={"source": name}).model.source
        assert source == "hf:Qwen/Qwen3-8B@b968826d9c46dd6066d109eabc6255188de91218"
    with pytest.raises(ValueError, match=r"write hf:Qwen/Qwen2.5-1.5B-Instruct@REVISION.*plain"):
        make_spec(model={"source": "Qwen/Qwen2.5-1.5B-Instruct"})
    assert make_spec(model={"source": "./models/mine"}).model.source == "./models/mine"
