from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.stats.intervals import wilson
from hillclimb.stats.paired import MAX_EXACT_BITS, mcnemar_exact, sign_flip_p_value
from hillclimb.stats.pass_rate import (
    Dimension,
    count_tasks,
    exact_pass_at_k,
    group_counts,
    mean_pass_at_k,
    pass_at_k,
    pass_rate,
    pass_table,
    signal_ratio,
    variance_per_prompt,
)
from hillclimb.stats.verdicts.compare import compare_rows
from hillclimb.stats.verdicts.verdict import Verdict


def row(
    task: str, score: float | None, *, env: str = "booking", sample: int = 0, held_out: bool = False
) -> OutcomeRow:
    graded = score is not None
    return OutcomeRow(
        rollout_id=f"{task}.{sample}",
        split="eval",
        decoding="sampled",
        task_key=task,
        env_key=env,
        template="held" if held_out else "seen",
        held_out_template=held_out,
        sample_index=sample,
        status=OutcomeStatus.GRADED if graded else OutcomeStatus.INFRA_ERROR,
        score=score,
        reason=None if graded else "tool_transport",
        stop_reason=StopReason.DONE if graded else StopReason.INFRA_ERROR,
        num_turns=1,
        num_tool_calls=0,
        num_tool_errors=0,
        num_repeated_calls=0,
        num_tokens=1,
        duration_s=0.0,
        trajectory="attempt-1/trajectories/x.jsonl.gz",
        trajectory_line=0,
    )


def rows(
    scores: Sequence[float | None], *, env: str = "booking", held_out: bool = False
) -> list[OutcomeRow]:
    return [row(f"t{i:03d}", score, env=env, held_out=held_out) for i, score in enumerate(scores)]


def test_pass_at_k_matches_the_estimator_worked_out_by_hand() -> None:
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 1, 2) == pytest.approx(1 - 3 / 6)
    assert pass_at_k(8, 2, 4) == pytest.approx(1 - 15 / 70)
    assert pass_at_k(4, 4, 2) == 1.0
    assert pass_at_k(4, 0, 4) == 0.0


def test_pass_at_k_equals_the_mean_over_all_subsets_of_size_k() -> None:
    samples = [1, 0, 0, 1, 0]
    drawn = [s for s in product(range(5), repeat=3) if len(set(s)) == 3]
    expected = sum(any(samples[i] for i in s) for s in drawn) / len(drawn)
    assert pass_at_k(5, 2, 3) == pytest.approx(expected)


@pytest.mark.parametrize(("n", "c", "k"), [(2, 3, 1), (2, -1, 1), (2, 1, 3), (2, 1, 0)])
def test_pass_at_k_refuses_what_is_undefined(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="undefined"):
        pass_at_k(n, c, k)


def test_a_missing_outcome_enters_the_bounds_and_the_coverage_but_not_the_value() -> None:
    rate = pass_rate(count_tasks(rows([1.0, 0.0, None, 1.0]), pass_threshold=1.0))
    assert rate.value == pytest.approx(2 / 3)
    assert (rate.bound_if_failed, rate.bound_if_passed) == (0.5, 0.75)
    assert (rate.num_tasks, rate.num_tasks_total, rate.coverage) == (3, 4, 0.75)


def test_a_task_with_fewer_than_k_grades_does_not_enter_pass_at_k() -> None:
    scores = [("a", 1.0), ("a", 0.0), ("b", 1.0), ("b", None)]
    found = count_tasks(
        [row(task, score, sample=i) for i, (task, score) in enumerate(scores)], pass_threshold=1.0
    )
    rate = pass_rate(found, k=2)
    assert (rate.value, rate.num_tasks) == (1.0, 1)


def test_no_rollouts_give_no_value_and_the_widest_interval() -> None:
    rate = pass_rate([])
    assert rate.value is None
    assert (rate.low, rate.high, rate.coverage) == (0.0, 1.0, 0.0)
    assert (rate.bound_if_failed, rate.bound_if_passed) == (0.0, 1.0)


def test_a_pass_is_a_score_at_the_threshold_or_above() -> None:
    counts = count_tasks(rows([0.5, 0.49, 1.0]), pass_threshold=0.5)
    assert [count.num_passed for count in counts] == [1, 0, 1]


def test_one_rollout_per_task_has_wilsons_interval() -> None:
    rate = pass_rate(count_tasks(rows([1.0] * 14 + [0.0] * 16), pass_threshold=1.0))
    assert (rate.low, rate.high) == pytest.approx((0.3023, 0.6386), abs=1e-4)
    assert (rate.low, rate.high) == wilson(14 / 30, 30)


def test_at_k_tasks_with_fewer_rollouts_are_only_counted() -> None:
    """Ten tasks of one pass in four: pass@2 is 1 - C(3, 2) / C(4, 2) = 1/2."""
    outcomes = [
        row(f"t{task}", float(sample == 0), sample=sample)
        for task in range(10)
        for sample in range(4)
    ]
    outcomes += [row("few", score, sample=at) for at, score in enumerate((1.0, None, None))]
    rate = pass_rate(count_tasks(outcomes, pass_threshold=1.0), k=2)
    assert (rate.k, rate.value) == (2, 0.5)
    assert (rate.num_tasks, rate.num_tasks_total) == (10, 11)
    assert (rate.num_graded, rate.num_rollouts) == (41, 43)
    # With its missing ones the eleventh task has three: 1 - C(2, 2) / C(3, 2) = 2/3, or 1.
    assert rate.bound_if_failed == pytest.approx((5 + 2 / 3) / 11)
    assert rate.bound_if_passed == pytest.approx(6 / 11)


def test_the_interval_is_no_narrower_than_that_of_tasks_that_are_all_alike() -> None:
    """Thirty tasks of one pass in two: all values are 1/2, and sixty rollouts count."""
    outcomes = [
        row(f"t{task}", float(sample == 0), sample=sample)
        for task in range(30)
        for sample in range(2)
    ]
    rate = pass_rate(count_tasks(outcomes, pass_threshold=1.0))
    assert (rate.low, rate.high) == pytest.approx(wilson(0.5, 60.0), rel=1e-12)


def test_rollouts_that_were_never_started_are_missing_and_counted_apart() -> None:
    unbegun = row("a", None).model_copy(update={"stop_reason": StopReason.NOT_STARTED})
    (count,) = count_tasks([row("a", None), unbegun], pass_threshold=1.0)
    assert (count.num_graded, count.num_missing, count.num_unbegun) == (0, 2, 1)
    assert count.is_begun
    (none,) = count_tasks([unbegun, unbegun], pass_threshold=1.0)
    assert (none.num_missing, none.num_unbegun, none.is_begun) == (2, 2, False)
    (graded,) = count_tasks([row("a", 1.0)], pass_threshold=1.0)
    assert (graded.num_unbegun, graded.is_begun) == (0, True)


def test_a_score_counts_only_with_a_grade() -> None:
    scored = row("a", None).model_copy(update={"score": 1.0})
    (count,) = count_tasks([scored, row("a", 0.0, sample=1)], pass_threshold=1.0)
    assert (count.num_graded, count.num_passed, count.num_missing) == (1, 0, 1)


def test_every_rate_of_a_table_is_at_k() -> None:
    outcomes = [
        row("a", float(sample == 0), sample=sample, env=env, held_out=env == "github")
        for env in ("booking", "github")
        for sample in range(4)
    ]
    found = pass_table(outcomes, pass_threshold=1.0, k=2)
    rates = [*found.by_env.values(), found.overall, found.seen_templates, found.held_out_templates]
    assert [(rate.k, rate.value, rate.num_tasks) for rate in rates] == [
        (2, 0.5, 1),
        (2, 0.5, 1),
        (2, 0.5, 2),
        (2, 0.5, 1),
        (2, 0.5, 1),
    ]
    assert pass_table(outcomes, pass_threshold=1.0).overall.value == 0.25


def test_variance_per_prompt_is_the_population_variance() -> None:
    assert variance_per_prompt([[1, 1, 0, 0]]) == 0.25
    assert variance_per_prompt([[1, 0, 0, 0]]) == 0.1875
    assert variance_per_prompt([[1, 1, 0, 0], [0, 0], [1.0]]) == 0.125
    assert variance_per_prompt([]) is None
    assert variance_per_prompt([[1.0]]) is None
    assert variance_per_prompt([[0.1 + 0.2, 0.3]]) == 0.0, "rounding is no contrast"


def test_signal_ratio_is_the_share_of_prompts_whose_scores_differ() -> None:
    assert signal_ratio([[1, 0], [1, 1], [0, 0], [1.0]]) == pytest.approx(1 / 3)
    assert signal_ratio([[1.0]]) is None


def test_mcnemar_matches_the_published_seven_flips_and_no_losses() -> None:
    assert mcnemar_exact(7, 0) == 0.015625
    assert mcnemar_exact(9, 2) == pytest.approx(0.0654296875)
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(3, 3) == 1.0


def test_the_sign_flip_test_on_single_rollouts_is_mcnemars() -> None:
    for gained, lost in [(7, 0), (9, 2), (2, 9), (5, 5), (0, 0), (40, 17)]:
        flips = [Fraction(1)] * gained + [Fraction(-1)] * lost + [Fraction(0)] * 3
        assert sign_flip_p_value(flips) == pytest.approx(mcnemar_exact(gained, lost), abs=0)


def test_the_sign_flip_test_equals_the_enumeration_of_all_signs() -> None:
    differences = [Fraction(n, d) for n, d in [(1, 4), (-1, 2), (3, 4), (1, 3), (1, 8), (0, 1)]]
    observed = abs(sum(differences, Fraction(0)))
    sums = [
        sum((sign * abs(d) for sign, d in zip(signs, differences, strict=True)), Fraction(0))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    expected = sum(abs(total) >= observed for total in sums) / len(sums)
    assert sign_flip_p_value(differences) == expected


def test_very_many_changes_use_the_normal_distribution_and_stay_close_to_exact() -> None:
    gained, lost = 2600, 2450
    assert MAX_EXACT_BITS < 5050 * 5052 * 5051
    p = sign_flip_p_value([Fraction(1)] * gained + [Fraction(-1)] * lost)
    assert p == pytest.approx(mcnemar_exact(gained, lost), rel=0.05)


@pytest.mark.parametrize(("signs", "p_value"), [((3, 4), 0.161513), ((3, -4), 0.841481)])
def test_the_normal_distribution_has_the_variance_of_the_steps(
    signs: tuple[int, int], p_value: float
) -> None:
    """Steps of 3 and 4 have the deviation 5: z is 7 / 5, or 1 / 5. A third one is next to none."""
    differences = [*map(Fraction, signs), Fraction(1, 10**12)]
    assert sign_flip_p_value(differences) == pytest.approx(p_value, abs=1e-5)


def test_the_exact_distribution_is_used_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of one: 2 * 4 * 3 = 24 bits moved; both signs alike in two of four ways."""
    differences = [Fraction(1), Fraction(1)]
    monkeypatch.setattr("hillclimb.stats.paired.MAX_EXACT_BITS", 24)
    assert sign_flip_p_value(differences) == 0.5
    monkeypatch.setattr("hillclimb.stats.paired.MAX_EXACT_BITS", 23)
    assert sign_flip_p_value(differences) == pytest.approx(0.157299, abs=1e-6)  # erfc(1)


def test_the_table_splits_by_environment_and_by_template() -> None:
    found = pass_table(
        [
            *rows([1.0, 0.0], env="booking"),
            *rows([1.0, 1.0], env="github", held_out=True),
        ],
        pass_threshold=1.0,
    )
    assert {key: rate.value for key, rate in found.by_env.items()} == {
        "booking": 0.5,
        "github": 1.0,
    }
    assert found.overall.value == 0.75
    assert (found.seen_templates.value, found.held_out_templates.value) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([0.0] * 20, [1.0] * 6 + [0.0] * 14, Verdict.IMPROVED),
        ([0.0] * 20, [1.0] * 5 + [0.0] * 15, Verdict.INCONCLUSIVE),
        ([1.0] * 6 + [0.0] * 14, [0.0] + [1.0] * 6 + [0.0] * 13, Verdict.FLAT),
        ([1.0] * 6 + [0.0] * 14, [0.0] * 20, Verdict.REGRESSED),
        ([1.0] * 20, [1.0] * 19 + [0.0], Verdict.SATURATED),
        ([0.0] * 20, [0.0] * 19 + [1.0], Verdict.FAILING),
        ([0.0] * 9, [1.0] * 9, Verdict.INCONCLUSIVE),
        ([], [1.0] * 20, Verdict.NO_EVAL),
        ([None] * 20, [1.0] * 20, Verdict.NO_EVAL),
    ],
)
def test_the_verdict_follows_the_rule(
    before: list[float | None], after: list[float | None], verdict: Verdict
) -> None:
    table = compare_rows(rows(before), rows(after), pass_threshold=1.0)
    assert table.overall.verdict is verdict


def test_missing_outcomes_that_could_change_the_verdict_make_it_inconclusive() -> None:
    before = rows([0.0] * 20)
    sure = compare_rows(before, rows([1.0] * 8 + [0.0] * 12), pass_threshold=1.0).overall
    shaky = compare_rows(before, rows([1.0] * 6 + [0.0] * 12 + [None] * 2), pass_threshold=1.0)
    fragile = compare_rows(before, rows([1.0] * 5 + [0.0] * 14 + [None]), pass_threshold=1.0)
    assert sure.verdict is Verdict.IMPROVED
    assert shaky.overall.verdict is Verdict.IMPROVED
    assert fragile.overall.verdict is Verdict.INCONCLUSIVE
    assert fragile.overall.num_paired == 19


def test_a_comparison_counts_pairs_gains_and_losses() -> None:
    found = compare_rows(
        rows([0.0, 1.0, 0.0, 0.0]), rows([1.0, 0.0, 1.0, 0.0, 1.0]), pass_threshold=1.0
    ).by_env["booking"]
    assert (found.num_paired, found.num_gained, found.num_lost) == (4, 2, 1)
    assert found.delta == pytest.approx(0.25)
    assert found.p_value == 1.0
    assert found.rule == "v2"


def test_groups_are_sorted_by_name_and_what_is_unknown_comes_last() -> None:
    """`vision` comes after `unknown` in the alphabet."""
    found = [
        each.model_copy(update={"modality": modality, "difficulty": difficulty})
        for each, modality, difficulty in zip(
            rows([1.0, 0.0, 0.0]), ("vision", "vision", "tool_use"), (1, 3, None), strict=True
        )
    ]
    counts = count_tasks(found, pass_threshold=1.0)
    assert list(group_counts(counts, Dimension.DIFFICULTY)) == ["1", "3", "unknown"]
    counts = (counts[0], replace(counts[1], modality=None), counts[2])
    groups = group_counts(counts, Dimension.MODALITY)
    assert list(groups) == ["tool_use", "vision", "unknown"]
    assert [count.task_key for count in groups["unknown"]] == ["t001"]


def test_a_score_of_a_rollout_that_failed_is_no_grade() -> None:
    failed = row("t000", None, sample=1).model_copy(update={"score": 1.0})
    (count,) = count_tasks([row("t000", 0.0), failed], pass_threshold=1.0)
    assert (count.num_graded, count.num_passed, count.num_missing) == (1, 0, 1)


@pytest.mark.parametrize("passed", [False, True])
def test_a_count_with_its_missing_rollouts_graded_is_that_of_the_same_task(passed: bool) -> None:
    scores = [1.0, 0.0, None, None]
    found = [
        row("t000", score, sample=at, held_out=True).model_copy(update={"difficulty": 2})
        for at, score in enumerate(scores)
    ]
    (count,) = count_tasks(found, pass_threshold=1.0)
    expected = replace(count, num_graded=4, num_passed=1 + 2 * passed, num_missing=0)
    assert count.with_missing(passed=passed) == expected
    assert (count.task_key, count.env_key, count.template) == ("t000", "booking", "held")


def test_the_exact_rate_is_a_fraction() -> None:
    assert exact_pass_at_k(4, 1, 2) == Fraction(1, 2)
    assert exact_pass_at_k(8, 2, 4) == Fraction(55, 70)
    with pytest.raises(ValueError, match="undefined"):
        exact_pass_at_k(4, 5, 1)


def test_the_mean_alone_is_that_of_the_rate() -> None:
    counts = count_tasks(rows([1.0, 0.0, 0.0, None]), pass_threshold=1.0)
    assert mean_pass_at_k(counts) == pass_rate(counts).value == pytest.approx(1 / 3)
    assert mean_pass_at_k([]) is None
