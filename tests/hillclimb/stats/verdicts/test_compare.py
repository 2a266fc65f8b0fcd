"""The pairs that a comparison makes, its figures, and the bounds of missing outcomes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.stats.pass_rate import TaskCount, count_tasks
from hillclimb.stats.power import detectable_paired, paired_size
from hillclimb.stats.verdicts.compare import (
    compare,
    compare_overall,
    compare_rows,
    verdict_overall,
)
from hillclimb.stats.verdicts.verdict import Selection, Verdict
from tests.hillclimb.stats.test_pass_rate import row, rows


def two_kinds() -> tuple[list[OutcomeRow], list[OutcomeRow]]:
    """Twelve tasks of seen templates get better, ten of held-out ones stay as they were."""
    old = rows([0.0] * 12) + rows([1.0] + [0.0] * 9, env="github", held_out=True)
    new = rows([1.0] * 12) + rows([1.0] + [0.0] * 9, env="github", held_out=True)
    return old, new


def test_seen_and_held_out_templates_are_compared_apart() -> None:
    table = compare_rows(*two_kinds(), pass_threshold=1.0)
    seen, held_out = table.seen_templates, table.held_out_templates
    assert (seen.before.value, seen.after.value, seen.delta) == (0.0, 1.0, 1.0)
    assert (held_out.before.value, held_out.after.value, held_out.delta) == (0.1, 0.1, 0.0)
    assert (seen.num_paired, held_out.num_paired, table.overall.num_paired) == (12, 10, 22)
    assert (seen.verdict, held_out.verdict) == (Verdict.IMPROVED, Verdict.FLAT)


def test_each_environment_is_compared_with_itself() -> None:
    """Both call their tasks t000 and so on."""
    table = compare_rows(*two_kinds(), pass_threshold=1.0)
    assert list(table.by_env) == ["booking", "github"]
    booking, github = table.by_env["booking"], table.by_env["github"]
    assert (booking.num_gained, booking.num_lost, booking.verdict) == (12, 0, Verdict.IMPROVED)
    assert (github.num_gained, github.num_lost, github.verdict) == (0, 0, Verdict.FLAT)
    assert table.overall.delta == pytest.approx(12 / 22)


def test_an_environment_of_one_evaluation_alone_is_in_the_table_without_a_change() -> None:
    table = compare_rows(rows([1.0]), rows([1.0], env="github"), pass_threshold=1.0)
    assert list(table.by_env) == ["booking", "github"]
    for each in table.by_env.values():
        assert (each.num_paired, each.delta, each.p_value) == (0, None, None)
        assert each.verdict is Verdict.NO_EVAL


def test_a_score_passes_from_the_threshold_on_in_both_evaluations() -> None:
    old, new = rows([0.4, 0.5]), rows([0.5, 0.4])
    half = compare_rows(old, new, pass_threshold=0.5).overall
    assert (half.before.value, half.after.value) == (0.5, 0.5)
    assert (half.num_gained, half.num_lost, half.delta) == (1, 1, 0.0)


def test_a_task_without_a_grade_on_one_side_is_in_no_pair() -> None:
    found = compare_rows(
        rows([1.0, None, 0.0, 0.0]), rows([0.0, 1.0, None, 1.0]), pass_threshold=1.0
    ).overall
    assert (found.num_paired, found.num_gained, found.num_lost) == (2, 1, 1)


def test_a_change_is_one_of_shares_where_a_task_has_several_rollouts() -> None:
    """From 1 of 2 to 3 of 4 is a quarter, from 1 of 1 to 1 of 2 minus a half."""
    old = [row("a", 1.0), row("a", 0.0, sample=1), row("b", 1.0)]
    new = [row("a", score, sample=at) for at, score in enumerate((1.0, 1.0, 1.0, 0.0))]
    new += [row("b", 1.0), row("b", 0.0, sample=1)]
    found = compare_rows(old, new, pass_threshold=1.0).overall
    assert found.delta == -0.125
    # However 1/4 and 1/2 are signed, their sum is at least 1/4 away from 0.
    assert found.p_value == 1.0


@pytest.mark.parametrize("missing", ["before", "after"])
def test_one_evaluation_without_any_grade_gives_no_verdict(missing: str) -> None:
    graded, none = rows([1.0] * 20), rows([None] * 20)
    old, new = (none, graded) if missing == "before" else (graded, none)
    assert compare_rows(old, new, pass_threshold=1.0).overall.verdict is Verdict.NO_EVAL


def test_missing_outcomes_of_both_sides_are_tried_in_every_way() -> None:
    """0 of 14 before and 6 of 14 after, with one more of each side missing.

    Both missing ones passed, or both failed: still six gained and none lost. The one before passed
    and the one after failed: p = 2 * 8 / 128 of seven changes.
    """
    old, new = [0.0] * 14, [1.0] * 6 + [0.0] * 8
    before, after = rows([*old, None]), rows([*new, None])
    assert compare_rows(rows(old), rows(new), pass_threshold=1.0).overall.verdict is (
        Verdict.IMPROVED
    )
    for shaky in ((before, rows([*new, 0.0])), (before, after)):
        found = compare_rows(*shaky, pass_threshold=1.0).overall
        assert found.verdict is Verdict.INCONCLUSIVE
    sure = compare_rows(rows([*old, 0.0]), after, pass_threshold=1.0).overall
    assert sure.verdict is Verdict.IMPROVED


def test_a_count_completed_in_one_way_keeps_its_task_and_misses_nothing() -> None:
    (count,) = count_tasks(
        [row("a", 1.0, held_out=True), row("a", None, sample=1), row("a", None, sample=2)],
        pass_threshold=1.0,
    )
    failed, passed = count.with_missing(passed=False), count.with_missing(passed=True)
    assert (failed.num_graded, failed.num_passed, failed.num_missing) == (3, 1, 0)
    assert (passed.num_graded, passed.num_passed, passed.num_missing) == (3, 3, 0)
    for each in (failed, passed):
        assert (each.task_key, each.env_key, each.template) == ("a", "booking", "held")
        assert each.held_out_template


def test_a_comparison_tells_what_it_could_have_shown_and_the_tasks_that_would_decide() -> None:
    """Of 40 tasks 6 rise and 2 fall: +10 points, with a share of losses of 5 %."""
    before = rows([0.0] * 6 + [1.0] * 2 + [0.0] * 32)
    after = rows([1.0] * 6 + [0.0] * 2 + [0.0] * 32)
    found = compare_rows(before, after, pass_threshold=1.0).overall
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.detectable == pytest.approx(detectable_paired(40, lost=0.05))
    assert found.num_tasks_to_decide == 155  # Connor's formula gives 154.6
    chosen = compare_rows(
        before, after, pass_threshold=1.0, selection=Selection(num_candidates=10)
    ).overall
    assert chosen.detectable == pytest.approx(detectable_paired(40, lost=0.05, level=0.0025))
    assert chosen.num_tasks_to_decide == int(paired_size(0.1, 0.05, level=0.0025)) + 1


def test_without_a_change_no_number_of_tasks_would_decide() -> None:
    found = compare_rows(rows([0.0] * 20), rows([0.0] * 20), pass_threshold=1.0).overall
    assert (found.delta, found.num_tasks_to_decide) == (0.0, None)
    assert found.detectable == pytest.approx(detectable_paired(20, lost=0.0))


def test_shares_of_several_rollouts_have_the_spread_of_their_squares() -> None:
    """Twenty tasks rise by 1/2 and ten fall by 1/2: mean 1/6, mean square 1/4."""
    before = [
        row(f"t{i}", score, sample=at) for i in range(30) for at, score in enumerate((1.0, 0.0))
    ]
    after = [
        row(f"t{i}", score, sample=at)
        for i in range(30)
        for at, score in enumerate((1.0, 1.0) if i < 20 else (0.0, 0.0))
    ]
    found = compare_rows(before, after, pass_threshold=1.0).overall
    assert found.num_tasks_to_decide == int(paired_size(1 / 6, (1 / 4 - 1 / 6) / 2)) + 1


def several(task: str, num_passed: int, num_samples: int = 4) -> list[OutcomeRow]:
    return [row(task, float(at < num_passed), sample=at) for at in range(num_samples)]


def test_pass_at_k_is_compared_task_by_task() -> None:
    """Of 4 rollouts, 0, 1, 2 and 3 passes are pass@2 of 0, 1/2, 5/6 and 1."""
    old = [*several("a", 0), *several("b", 1), *several("c", 2), *several("d", 3)]
    new = [*several("a", 1), *several("b", 2), *several("c", 2), *several("d", 2)]
    found = compare_rows(old, new, pass_threshold=1.0, k=2).overall
    assert (found.before.k, found.before.value) == (2, pytest.approx((0 + 1 / 2 + 5 / 6 + 1) / 4))
    assert found.delta == pytest.approx((1 / 2 + 1 / 3 + 0 - 1 / 6) / 4)
    assert (found.num_gained, found.num_lost) == (2, 1)


def test_a_task_with_fewer_grades_than_k_is_in_no_pair() -> None:
    old = [*several("a", 1), *several("b", 0, num_samples=1)]
    new = [*several("a", 2), *several("b", 1, num_samples=1)]
    assert compare_rows(old, new, pass_threshold=1.0, k=2).overall.num_paired == 1
    assert compare_rows(old, new, pass_threshold=1.0).overall.num_paired == 2
    none = compare_rows(old, new, pass_threshold=1.0, k=5).overall
    assert (none.verdict, none.delta) == (Verdict.NO_EVAL, None)


def test_more_tasks_solved_at_all_improve_pass_at_k() -> None:
    """Each of 12 tasks is solved once instead of never: pass@4 rises from 0 to 1."""
    old = [each for i in range(12) for each in several(f"t{i}", 0)]
    new = [each for i in range(12) for each in several(f"t{i}", 1)]
    table = compare_rows(old, new, pass_threshold=1.0, k=4)
    assert (table.k, table.overall.verdict, table.overall.delta) == (4, Verdict.IMPROVED, 1.0)


def test_pass_at_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="pass@0 is undefined"):
        compare_rows([], [], pass_threshold=1.0, k=0)


@pytest.mark.parametrize("seed", range(12))
def test_the_word_alone_is_that_of_the_whole_comparison(seed: int) -> None:
    """Gains, losses, missing outcomes and evaluations that ended early."""
    random = Random(seed)
    rate, missing, is_complete = 0.3 + 0.05 * seed, 0.02 * (seed % 3), seed % 4 > 0
    sides = [
        [
            TaskCount(
                env_key="booking",
                task_key=str(task),
                template="t",
                held_out_template=False,
                num_graded=int(random.random() >= missing),
                num_passed=0,
                num_missing=0,
                num_unbegun=0,
            )
            for task in range(60)
        ]
        for _ in range(2)
    ]
    before, after = (
        [
            replace(
                count,
                num_passed=int(count.num_graded and random.random() < share),
                num_missing=1 - count.num_graded,
            )
            for count in side
        ]
        for side, share in zip(sides, (0.5, rate), strict=True)
    )
    selection = Selection(num_candidates=1 + seed % 3, is_complete=is_complete)
    overall = compare_overall(before, after, selection=selection)
    assert overall == compare(before, after, selection=selection).overall
    assert verdict_overall(before, after, selection=selection) is overall.verdict
