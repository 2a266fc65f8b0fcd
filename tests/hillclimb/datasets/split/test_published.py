"""Splits that somebody else published, in every form."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.datasets.format.rows import DatasetError
from hillclimb.datasets.split.published import read_published
from hillclimb.datasets.split.splits import OVERRULED_EVAL, OVERRULED_TRAIN, UNPUBLISHED
from tests.hillclimb.datasets.split.made import keys, reasons, split
from tests.hillclimb.datasets.tasks import task

PUBLISHED = {"a": "eval", "b": "train", "c": "train"}


@pytest.mark.parametrize(
    "document",
    [
        PUBLISHED,
        {"train": ["b", "c"], "validation": ["a"]},
        [{"key": "d", "split": "excluded"}]
        + [{"task_key": key, "split": name} for key, name in PUBLISHED.items()],
        [{"key": key, "data_split": name} for key, name in PUBLISHED.items()],
    ],
)
def test_a_published_split_is_followed_in_every_form(document: Any) -> None:
    made = split([task(key) for key in "abcd"], read_published(document))
    assert (keys(made, "eval"), keys(made, "train")) == ({"a"}, {"b", "c"})
    assert reasons(made) == {"d": UNPUBLISHED}


def test_a_published_split_does_not_undo_what_earlier_versions_did() -> None:
    rows = [task(key) for key in "abc"]
    first = split(rows, read_published(PUBLISHED))
    swapped = split(rows, read_published({"a": "train", "b": "eval", "c": "train"}), first)
    assert reasons(swapped) == {"a": OVERRULED_TRAIN, "b": OVERRULED_EVAL}
    again = read_published({"a": "train", "b": "eval", "c": "train"})
    allowed = again.model_copy(update={"trained_may_become_eval": True})
    swapped = split(rows, allowed, first)
    assert reasons(swapped) == {"a": OVERRULED_TRAIN}
    assert keys(swapped, "eval") == {"b"}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (5, "a published split is"),
        ([["a", "train"]], "a published split is"),
        ({}, "names no task"),
        ({"a": "dev"}, "'a' has 'dev'"),
        ({"a": 7, "b": []}, "'a' has '7'"),
        ({"a": {}}, "'a' has '{}'"),
        ([{"key": None, "split": "train"}], "'None' has 'train'"),
        ({"train": ["a"], "eval": ["a"]}, "'a' in both"),
        ({"train": [["a"]]}, "has 'train'"),
    ],
)
def test_a_published_split_of_another_form_is_refused(document: Any, sentence: str) -> None:
    with pytest.raises(DatasetError, match=sentence):
        read_published(document)
