"""What changed between two versions is told task by task and environment by environment."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from hillclimb.datasets.diff import EnvDiff, VersionDiff, diff_versions
from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.lineage import Lineage
from hillclimb.datasets.format.rows import DatasetError, TaskRow
from hillclimb.datasets.prepare import Prepared, PrepareOptions, prepare
from tests.hillclimb.datasets.tasks import tasks

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def version(rows: list[TaskRow], *out: str, parent: Prepared | None = None) -> Prepared:
    lineage = Lineage.of([parent.split]) if parent else None
    exclusions = [Exclusion(scope="task", key=key, reason="bad") for key in out]
    return prepare(rows, PrepareOptions(), now=NOW, lineage=lineage, exclusions=exclusions)


def diff(before: Prepared, after: Prepared) -> VersionDiff:
    return diff_versions(
        iter(before.rows),
        {each.key: each for each in before.split},
        iter(after.rows),
        {each.key: each for each in after.split},
    )


def test_tasks_that_came_went_changed_and_moved_are_told() -> None:
    rows = tasks({"booking": 60, "zillow": 60})
    first = version(rows)
    gone, edited = rows[0], rows[1].model_copy(update={"difficulty": 3, "env_version": "v2"})
    moved = next(each.key for each in first.split if each.split == "eval" and "zillow" in each.key)
    second = version([*rows[2:], edited, *tasks({"github": 2})], moved, parent=first)
    told = diff(first, second)
    assert [(each.key, each.split) for each in told.added] == [
        ("task_github_0", "train"),
        ("task_github_1", "train"),
    ]
    assert [each.key for each in told.removed] == [gone.key]
    assert [(each.key, each.fields) for each in told.changed] == [
        (edited.key, ("difficulty", "env_version"))
    ]
    assert [(m.key, m.before, m.after, m.reason) for m in told.moved] == [
        (moved, "eval", "excluded", "user: bad")
    ]
    assert told.unchanged == 120 - 3
    assert told.by_env == (
        EnvDiff(env_key="booking", removed=1, changed=1),
        EnvDiff(env_key="github", added=2),
        EnvDiff(env_key="zillow", moved=1),
    )


def test_a_version_does_not_differ_from_itself() -> None:
    same = version(tasks({"booking": 60}))
    told = diff(same, same)
    assert (told.added, told.removed, told.changed, told.moved) == ((), (), (), ())
    assert (told.by_env, told.unchanged) == ((), 60)


def test_it_agrees_with_sets_on_random_versions() -> None:
    rng = random.Random(4)
    rows = tasks({"booking": 30, "zillow": 30})
    for _ in range(20):
        old, new = (version(rng.sample(rows, rng.randrange(1, 60))) for _ in range(2))
        told = diff(old, new)
        before, after = ({row.key for row in each.rows} for each in (old, new))
        assert {each.key for each in told.added} == after - before
        assert {each.key for each in told.removed} == before - after
        assert len(told.moved) + told.unchanged == len(before & after)


def test_rows_out_of_order_are_refused() -> None:
    made = version(tasks({"booking": 6}))
    split = {each.key: each for each in made.split}
    with pytest.raises(DatasetError, match="not sorted by key"):
        diff_versions(made.rows, split, reversed(made.rows), split)
