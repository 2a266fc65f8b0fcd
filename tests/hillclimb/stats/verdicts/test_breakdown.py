"""Changes by difficulty and modality, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hillclimb.stats.pass_rate import Dimension, TaskCount, group_counts
from hillclimb.stats.verdicts.breakdown import change_of, paired_groups


def count(
    task: str,
    passed: int,
    *,
    graded: int = 3,
    difficulty: int | None = None,
    modality: str | None = None,
) -> TaskCount:
    return TaskCount(
        task_key=task,
        env_key="booking",
        template="t",
        held_out_template=False,
        num_graded=graded,
        num_passed=passed,
        num_missing=0,
        difficulty=difficulty,
        modality=modality,
    )


def test_tasks_without_a_difficulty_are_a_group_of_their_own_and_the_last() -> None:
    counts = [count("a", 0), count("b", 0, difficulty=3), count("c", 0, difficulty=1)]
    groups = group_counts(counts, Dimension.DIFFICULTY)
    assert {name: [c.task_key for c in group] for name, group in groups.items()} == {
        "1": ["c"],
        "3": ["b"],
        "unknown": ["a"],
    }
    assert list(groups) == ["1", "3", "unknown"]
    assert list(group_counts(counts, Dimension.MODALITY)) == ["unknown"]
    assert list(group_counts(counts, Dimension.ENVIRONMENT)) == ["booking"]


def test_a_change_at_three_is_that_of_the_unbiased_estimates() -> None:
    """pass@2 of 0, 1 and 3 passes in three is 0, 2/3 and 1; the last task has one grade only."""
    before = [count("a", 0), count("b", 1), count("c", 3), count("d", 1, graded=1)]
    after = [count("a", 1), count("b", 1), count("c", 1), count("d", 1, graded=1)]
    change = change_of(before, after, k=2)
    assert change.before.value == pytest.approx((0 + 2 / 3 + 1) / 3)
    assert change.after.value == pytest.approx(2 / 3)
    assert change.delta == pytest.approx((2 / 3 + 0 - 1 / 3) / 3)
    assert (change.num_paired, change.num_gained, change.num_lost) == (3, 1, 1)
    assert (change.after.num_tasks, change.after.num_tasks_total) == (3, 4)
    assert 0.0 < change.before.low < change.before.value < change.before.high < 1.0


def test_a_change_is_of_pass_at_1_if_nothing_else_is_said() -> None:
    assert change_of([count("a", 0)], [count("a", 1)]).delta == pytest.approx(1 / 3)


def test_a_group_that_one_side_lacks_has_no_change() -> None:
    change = change_of([], [count("a", 1)])
    assert (change.before.value, change.delta, change.num_paired) == (None, None, 0)


def test_a_task_stands_in_one_group_that_of_the_later_evaluation() -> None:
    before = [
        count("a", 0, difficulty=1, modality="tool_use"),
        count("b", 0, difficulty=2),
        count("c", 0),
    ]
    after = [count("a", 3, difficulty=2), count("b", 3), count("c", 3)]
    by_difficulty = paired_groups(before, after, Dimension.DIFFICULTY)
    assert {
        name: [[c.task_key for c in side] for side in sides]
        for name, sides in by_difficulty.items()
    } == {"2": [["a", "b"], ["a", "b"]], "unknown": [["c"], ["c"]]}
    seen = [count("d", 0, modality="vision"), *before]
    assert list(paired_groups(seen, after, Dimension.MODALITY)) == ["tool_use", "vision", "unknown"]
    by_modality = paired_groups(before, after, Dimension.MODALITY)
    assert [c.task_key for c in by_modality["tool_use"][1]] == ["a"]
    assert [c.task_key for c in by_modality["unknown"][0]] == ["b", "c"]


def test_a_task_keeps_its_groups_when_its_missing_rollouts_are_filled() -> None:
    whole = replace(count("a", 1, difficulty=2, modality="tool_use"), num_missing=2)
    for passed in (False, True):
        filled = whole.with_missing(passed=passed)
        assert (filled.num_graded, filled.num_passed) == (5, 1 + 2 * passed)
        assert (filled.difficulty, filled.modality) == (2, "tool_use")
