"""`data.dataset`: how a run names the version of a dataset that it takes its tasks from."""

from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.data import DatasetRef
from tests.fixtures.factories import make_spec


def data(**keys: Any) -> Any:
    return make_spec(data=keys).data


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("fleet-v4", {"name": "fleet-v4"}),
        ("fleet-v4@3", {"name": "fleet-v4", "version": 3}),
        ({"name": "v6", "version": 2, "id": "dsv_1", "digest": "ab"},) * 2,
    ],
)
def test_a_dataset_is_named_in_short_or_in_full(written: Any, meant: dict[str, Any]) -> None:
    assert data(dataset=written).dataset == DatasetRef(**meant)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({}, "env_keys is missing"),
        ({"dataset": "a@latest"}, "'a@latest' names no version: write NAME@3"),
        ({"dataset": "a@"}, "'a@' names no version"),
        ({"dataset": "a b"}, "should match pattern"),
        ({"dataset": "a", "eval_tasks_per_env": 4}, "eval_tasks_per_env is set, but the tasks"),
        ({"dataset": "a@2", "train_tasks_by_env": {"x": 4}}, "come from dataset a@2"),
        ({"dataset": "a", "env_keys": ["booking", "booking"]}, "list each one once"),
        (
            {"dataset": "a", "allow_lint": ["leaks"]},
            "names 'leaks', which blocks no run: the codes",
        ),
        ({"dataset": "a", "allow_lint": ["copies"]}, "that do are leak, "),
        ({"env_keys": ["booking"], "allow_lint": ["leak"]}, "does nothing without a dataset"),
    ],
)
def test_what_a_dataset_leaves_without_effect_is_refused(
    keys: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        data(**keys)


def test_numbers_of_tasks_are_checked_when_they_are_known() -> None:
    spec = make_spec(
        data={"dataset": "a", "env_keys": ["booking"]},
        schedule={"total_steps": 1, "train_batch_size": 8, "mini_batch_size": 8},
    )
    spec.check_tasks({"booking": 8}, 4)
    with pytest.raises(ValueError, match="lower it or take a larger dataset"):
        spec.check_tasks({"booking": 7}, 4)
    with pytest.raises(ValueError, match="lower the decoding's n_samples_per_prompt"):
        spec.check_evaluation(10_001)


def test_overrides_wait_for_the_environments_of_the_dataset() -> None:
    override = {"overrides": {"github": {"max_turns": 3}}}
    make_spec(data={"dataset": "a"}, environment=override)
    with pytest.raises(ValidationError, match="does not list"):
        make_spec(data={"dataset": "a", "env_keys": ["booking"]}, environment=override)


def test_a_validation_of_generated_tasks_has_nothing_to_exclude_them_from() -> None:
    section = {"exclude": True}
    make_spec(kind="validate", data={"dataset": "a"}, validation=section)
    make_spec(validation=section)  # other kinds only keep it
    with pytest.raises(ValidationError, match=r"set data\.dataset, or leave it out"):
        make_spec(kind="validate", validation=section)
