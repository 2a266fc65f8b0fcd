"""Rule v1 at its limits."""

from __future__ import annotations

from fractions import Fraction

import pytest

from hillclimb.stats.verdicts.compare import compare_rows
from hillclimb.stats.verdicts.rule_v1 import RuleV1, decide
from hillclimb.stats.verdicts.verdict import PairedSample, Selection, Verdict
from tests.hillclimb.stats.test_pass_rate import rows

SAME = Fraction(0)
UP = Fraction(1, 16)
DOWN = Fraction(-1, 16)


@pytest.mark.parametrize(
    ("before", "after", "differences", "verdict"),
    [
        (0.5, 0.5, [SAME] * 9, Verdict.INCONCLUSIVE),
        (0.5, 0.5, [SAME] * 10, Verdict.FLAT),
        (0.9, 0.95, [SAME] * 10, Verdict.SATURATED),
        (0.95, 0.9, [SAME] * 10, Verdict.SATURATED),
        (0.89, 1.0, [SAME] * 10, Verdict.FLAT),
        (1.0, 0.89, [SAME] * 10, Verdict.FLAT),
        (0.05, 0.05, [SAME] * 10, Verdict.FAILING),
        (0.06, 0.06, [SAME] * 10, Verdict.FLAT),
        (0.0, 0.06, [SAME] * 10, Verdict.FLAT),
        # Six of one sign: p = 2 / 64. Five: p = 2 / 32.
        (0.5, 0.6, [UP] * 6 + [SAME] * 4, Verdict.IMPROVED),
        (0.5, 0.6, [UP] * 5 + [SAME] * 5, Verdict.FLAT),
        (0.6, 0.5, [DOWN] * 6 + [SAME] * 4, Verdict.REGRESSED),
        (0.6, 0.5, [DOWN] * 5 + [SAME] * 5, Verdict.FLAT),
        # What was lost counts before what is left, and what is left before what was won.
        (1.0, 0.95, [DOWN] * 6 + [SAME] * 4, Verdict.REGRESSED),
        (0.1, 0.01, [DOWN] * 6 + [SAME] * 4, Verdict.REGRESSED),
        (0.91, 0.95, [UP] * 6 + [SAME] * 4, Verdict.SATURATED),
        (0.0, 0.04, [UP] * 6 + [SAME] * 4, Verdict.IMPROVED),
    ],
)
def test_the_rule_holds_at_its_limits(
    before: float, after: float, differences: list[Fraction], verdict: Verdict
) -> None:
    assert decide(before, after, differences) is verdict


def test_rule_v1_corrects_nothing() -> None:
    """Seven of seven: p = 2 / 128, which v2 multiplies by ten candidates."""
    before, after = rows([0.0] * 20), rows([1.0] * 7 + [0.0] * 13)
    selection = Selection(num_candidates=10)
    old = compare_rows(before, after, pass_threshold=1.0, selection=selection, rule="v1").overall
    new = compare_rows(before, after, pass_threshold=1.0, selection=selection).overall
    assert (old.rule, old.verdict, old.p_adjusted, old.e_value) == (
        "v1", Verdict.IMPROVED, None, None,
    )  # fmt: skip
    assert (new.rule, new.verdict) == ("v2", Verdict.INCONCLUSIVE)
    assert old.p_value == new.p_value == pytest.approx(2 / 128)
    assert new.p_adjusted == pytest.approx(20 / 128)


@pytest.mark.parametrize(("before", "after"), [(None, 0.5), (0.5, None), (None, None)])
def test_without_one_of_both_evaluations_there_is_no_verdict(
    before: float | None, after: float | None
) -> None:
    sample = PairedSample(before=before, after=after, differences=(UP,) * 20)
    judged = RuleV1().judge({"a": sample}, Selection(), level=0.05)
    assert judged["a"].verdict is Verdict.NO_EVAL


def test_each_direction_has_half_of_five_percent_whatever_else_is_compared() -> None:
    selection = Selection(num_candidates=4)
    assert RuleV1().one_sided_level(selection, level=0.1, num_samples=3) == 0.025
