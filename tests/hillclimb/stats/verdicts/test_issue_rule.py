"""The status of an issue, from counts of the smallest sizes that decide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hillclimb.stats.verdicts.issue_rule import (
    IssueStatus,
    SymptomChange,
    SymptomCount,
    judge_symptom,
)
from hillclimb.stats.verdicts.unpaired import fisher_exact


def tasks(
    number: int, showing: int, *, prefix: str = "t", unknown: int = 0, rollouts: int = 1
) -> list[SymptomCount]:
    """The first `showing` tasks show it in all rollouts; the last `unknown` ones are not known."""
    return [
        SymptomCount(
            env_key="booking",
            task_key=f"{prefix}{i}",
            num_known=0 if i >= number - unknown else rollouts,
            num_showing=rollouts if i < showing else 0,
            num_unknown=rollouts if i >= number - unknown else 0,
            first_shows=None if i >= number - unknown else i < showing,
        )
        for i in range(number)
    ]


def status(change: SymptomChange) -> tuple[IssueStatus, float | None]:
    return change.status, change.p_value


def test_rarer_is_improved_and_below_five_percent_fixed() -> None:
    assert status(judge_symptom(tasks(40, 30), tasks(40, 24))) == (
        IssueStatus.IMPROVED,
        2 * 0.5**6,
    )
    assert judge_symptom(tasks(40, 8), tasks(40, 2)).status is IssueStatus.IMPROVED
    fixed = judge_symptom(tasks(41, 8), tasks(41, 2))
    assert fixed.status is IssueStatus.FIXED
    assert fixed.delta == pytest.approx(-6 / 41)
    assert (fixed.before.value, fixed.after.value) == (8 / 41, 2 / 41)
    assert fixed.after.low < 2 / 41 < fixed.after.high
    assert judge_symptom(tasks(40, 2), tasks(40, 8)).status is IssueStatus.WORSE


def test_five_changed_tasks_show_nothing() -> None:
    change = judge_symptom(tasks(40, 5), tasks(40, 0))
    assert status(change) == (IssueStatus.NEEDS_ANALYSIS, 2 * 0.5**5)
    assert change.why == "too few tasks to show that half of it went"


def test_unchanged_needs_enough_tasks_to_have_seen_half_of_it_go() -> None:
    assert judge_symptom(tasks(40, 20), tasks(40, 20)).status is IssueStatus.UNCHANGED
    assert judge_symptom(tasks(40, 4), tasks(40, 4)).status is IssueStatus.NEEDS_ANALYSIS
    assert judge_symptom(tasks(40, 0), tasks(40, 0)).why == "neither evaluation shows it"


def test_other_tasks_are_tested_without_pairs_on_first_rollouts() -> None:
    change = judge_symptom(tasks(20, 16), tasks(30, 6, prefix="u", rollouts=3))
    assert (change.is_paired, change.num_paired) == (False, 0)
    assert change.p_value == fisher_exact((16, 6), (20, 30))
    assert change.delta == pytest.approx(0.2 - 0.8)
    assert change.status is IssueStatus.IMPROVED
    assert judge_symptom(tasks(60, 30), tasks(60, 28, prefix="u")).status is IssueStatus.UNCHANGED
    first, last = (
        judge_symptom(tasks(20, 0), tasks(20, 10, prefix="u")),
        judge_symptom(tasks(20, 10), tasks(20, 0, prefix="u")),
    )
    assert (first.status, first.delta) == (IssueStatus.WORSE, 0.5)
    assert (last.status, last.delta) == (IssueStatus.FIXED, -0.5)
    ten = judge_symptom(tasks(10, 9), tasks(10, 0, prefix="u"))
    assert (ten.p_value, ten.is_paired) == (fisher_exact((9, 0), (10, 10)), False)
    few = judge_symptom(tasks(20, 10), tasks(20, 8, prefix="u"))
    assert few.status is IssueStatus.NEEDS_ANALYSIS


def test_other_tasks_need_more_to_have_seen_half_of_it_go() -> None:
    """A half to a quarter: (1.96 sqrt(15/32) + 0.8416 sqrt(7/16))^2 / (1/4)^2 = 57.7 per side."""
    enough = judge_symptom(tasks(58, 29), tasks(58, 28, prefix="u"))
    assert enough.status is IssueStatus.UNCHANGED
    fewer = judge_symptom(tasks(56, 28), tasks(58, 28, prefix="u"))
    assert fewer.status is IssueStatus.NEEDS_ANALYSIS
    assert fewer.why == "too few tasks to show that half of it went"


def test_few_shared_tasks_make_no_pairs() -> None:
    """Ten of 30 tasks are the same: less than half."""
    after = [*tasks(10, 0), *tasks(20, 0, prefix="u")]
    change = judge_symptom(tasks(30, 20), after)
    assert (change.num_paired, change.is_paired) == (10, False)
    assert judge_symptom(tasks(20, 12), after[:20]).is_paired is True


def test_small_or_missing_evaluations_need_analysis() -> None:
    small = judge_symptom(tasks(9, 9), tasks(9, 0))
    assert status(small) == (IssueStatus.NEEDS_ANALYSIS, None)
    assert small.why == "an evaluation has 9 tasks: a test needs 10"
    assert small.is_paired is None
    assert judge_symptom(tasks(10, 9), tasks(10, 0)).status is IssueStatus.FIXED
    nothing = judge_symptom(tasks(40, 20), [])
    assert nothing.why == "no rollout of the later evaluation is known"
    assert judge_symptom([], tasks(40, 20)).why == "no rollout of the earlier evaluation is known"


def test_an_unknown_rollout_is_filled_in_once() -> None:
    known = SymptomCount(
        env_key="booking", task_key="t", num_known=2, num_showing=1, num_unknown=3,
        first_shows=False,
    )  # fmt: skip
    filled = replace(known, num_known=5, num_unknown=0)
    assert known.filled(showing=True) == replace(filled, num_showing=4)
    assert known.filled(showing=False) == filled
    assert known.filled(showing=None) is known
    assert filled.filled(showing=True) is filled
    nothing = replace(known, num_known=0, num_showing=0, first_shows=None)
    assert nothing.filled(showing=True).first_shows is True
    assert nothing.filled(showing=False).first_shows is False


def test_several_rollouts_of_a_task_count_with_their_share() -> None:
    """Of both rollouts of 20 tasks one shows it no more: -1/2 each, p = 2 / 2^20."""
    before = tasks(20, 20, rollouts=2)
    change = judge_symptom(before, [replace(count, num_showing=1) for count in before])
    assert (change.delta, change.p_value) == (-0.5, 2 * 0.5**20)
    assert change.status is IssueStatus.IMPROVED


def showing(number: int, which: range) -> list[SymptomCount]:
    """Of so many tasks these show it."""
    return [
        replace(count, num_showing=int(at in which), first_shows=at in which)
        for at, count in enumerate(tasks(number, 0))
    ]


def test_half_of_the_earlier_share_has_to_be_seen_to_go() -> None:
    """17 of 50: to see 0.17 go takes 44 tasks, and 0.13, half of the later share, 58.

    If four tasks come as four go, to see 0.17 go takes 87, and if one comes, 0.25 takes 34.
    """
    assert judge_symptom(tasks(50, 17), tasks(50, 13)).status is IssueStatus.UNCHANGED
    exchanged = judge_symptom(showing(50, range(17)), showing(50, range(4, 21)))
    assert exchanged.status is IssueStatus.NEEDS_ANALYSIS
    one = judge_symptom(showing(50, range(25)), showing(50, range(1, 26)))
    assert (one.status, one.delta) == (IssueStatus.UNCHANGED, 0.0)
    assert judge_symptom(tasks(40, 0), tasks(40, 2)).status is IssueStatus.NEEDS_ANALYSIS


def test_what_is_unknown_of_the_earlier_evaluation_counts_too() -> None:
    """Seven tasks lost it. The six that show it now may have had it before, or may not."""
    before = tasks(60, 7, unknown=6)
    change = judge_symptom(before, showing(60, range(54, 60)))
    assert (change.status, change.p_value) == (IssueStatus.NEEDS_ANALYSIS, 2 * 0.5**7)
    assert change.why is not None
    assert change.why.startswith("6 rollouts")


def test_a_status_that_unknown_rollouts_could_change_needs_analysis() -> None:
    assert judge_symptom(tasks(60, 40), tasks(60, 0, unknown=2)).status is IssueStatus.FIXED
    many = judge_symptom(tasks(60, 40), tasks(60, 0, unknown=4))
    assert many.status is IssueStatus.NEEDS_ANALYSIS
    assert "4 rollouts of which it is not known" in (many.why or "")
    assert many.after.value == 0.0


def test_fishers_test_counts_the_tables_that_are_no_more_likely() -> None:
    """3 of 4 against 1 of 4: the tables 0, 1, 3 and 4 have 1, 16, 16 and 1 of 70 ways."""
    assert fisher_exact((3, 1), (4, 4)) == pytest.approx(34 / 70)
    assert fisher_exact((4, 0), (4, 4)) == fisher_exact((0, 4), (4, 4)) == pytest.approx(2 / 70)
    assert fisher_exact((0, 0), (4, 4)) == 1.0
    with pytest.raises(ValueError, match="5 of 4"):
        fisher_exact((5, 0), (4, 4))
