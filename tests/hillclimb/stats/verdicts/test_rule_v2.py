"""Rule v2 at its limits: looks, candidates, environments, both directions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from hillclimb.stats.evidence import log_e_value
from hillclimb.stats.verdicts.compare import ENVIRONMENTS_LEVEL, LEVEL, compare_rows
from hillclimb.stats.verdicts.rule_v2 import RuleV2
from hillclimb.stats.verdicts.verdict import PairedSample, Selection, Verdict
from tests.hillclimb.stats.test_pass_rate import rows

SAME, UP, DOWN = Fraction(0), Fraction(1, 16), Fraction(-1, 16)
LOOK = Selection(is_complete=False)


def word(
    before: float, after: float, differences: Sequence[Fraction], selection: Selection | None = None
) -> Verdict:
    sample = PairedSample(before=before, after=after, differences=tuple(differences))
    return RuleV2().judge({"all": sample}, selection or Selection(), level=LEVEL)["all"].verdict


@pytest.mark.parametrize(
    ("before", "after", "differences", "verdict"),
    [
        (0.5, 0.5, [SAME] * 9, Verdict.INCONCLUSIVE),
        (0.5, 0.5, [SAME] * 10, Verdict.FLAT),
        (0.9, 0.95, [SAME] * 10, Verdict.SATURATED),
        (0.89, 1.0, [SAME] * 10, Verdict.FLAT),
        (0.05, 0.05, [SAME] * 10, Verdict.FAILING),
        (0.06, 0.06, [SAME] * 10, Verdict.FLAT),
        # Six of one sign: 2 / 64, half of the level is the exact test's. Five: 2 / 32.
        (0.5, 0.6, [UP] * 6 + [SAME] * 4, Verdict.IMPROVED),
        (0.5, 0.6, [UP] * 5 + [SAME] * 5, Verdict.FLAT),
        (0.6, 0.5, [DOWN] * 6 + [SAME] * 4, Verdict.REGRESSED),
        (0.6, 0.5, [DOWN] * 5 + [SAME] * 5, Verdict.FLAT),
        # A loss precedes saturation and failing, and saturation precedes a gain.
        (1.0, 0.95, [DOWN] * 6 + [SAME] * 4, Verdict.REGRESSED),
        (0.1, 0.01, [DOWN] * 6 + [SAME] * 4, Verdict.REGRESSED),
        (0.91, 0.95, [UP] * 6 + [SAME] * 4, Verdict.SATURATED),
        (0.0, 0.04, [UP] * 6 + [SAME] * 4, Verdict.IMPROVED),
    ],
)
def test_at_the_planned_end_the_rule_sees_what_v1_sees(
    before: float, after: float, differences: list[Fraction], verdict: Verdict
) -> None:
    assert word(before, after, differences) is verdict


@pytest.mark.parametrize(
    ("num_candidates", "needed"), [(1, 6), (2, 7), (3, 7), (4, 8), (6, 8), (7, 9), (10, 9)]
)
def test_a_checkpoint_chosen_from_several_needs_more(num_candidates: int, needed: int) -> None:
    """2 K / 2^m <= 0.05, the smallest such m."""
    selection = Selection(num_candidates=num_candidates)
    for sign, expected in ((1, Verdict.IMPROVED), (-1, Verdict.REGRESSED)):
        change = [Fraction(sign, 16)]
        assert word(0.5, 0.5, change * needed + [SAME] * 20, selection) is expected
        assert word(0.5, 0.5, change * (needed - 1) + [SAME] * 20, selection) is Verdict.FLAT


def test_a_look_reads_the_evidence_alone() -> None:
    """Of whole gains: the capital, which doubles at most, must reach 2 / 0.05 = 40."""
    needed = next(m for m in range(1, 50) if log_e_value([Fraction(1)] * m) >= 3.6889)
    assert needed == 8
    gains = [Fraction(1)] * needed
    assert word(0.2, 0.6, [*gains, *[SAME] * 9], LOOK) is Verdict.IMPROVED
    assert word(0.2, 0.6, [*gains[:-1], *[SAME] * 9], LOOK) is Verdict.INCONCLUSIVE
    losses = [-gain for gain in gains]
    assert word(0.6, 0.2, [*losses, *[SAME] * 9], LOOK) is Verdict.REGRESSED
    assert word(0.2, 0.6, [*gains[:6], *[SAME] * 9]) is Verdict.IMPROVED


def test_a_visible_change_that_the_tasks_are_too_few_to_show_is_not_flat() -> None:
    """Five of twelve gained and none lost: p = 0.0625, and +41.7 points are seen."""
    up, same = Fraction(1), SAME
    assert word(0.33, 0.75, [up] * 5 + [same] * 7) is Verdict.INCONCLUSIVE
    assert word(0.75, 0.33, [-up] * 5 + [same] * 7) is Verdict.INCONCLUSIVE
    assert word(0.3, 0.35, [up] * 2 + [same] * 18) is Verdict.INCONCLUSIVE
    assert word(0.3, 0.35, [up] * 2 + [same] * 19) is Verdict.FLAT
    assert word(0.0, 0.05, [up] * 2 + [same] * 10) is Verdict.FAILING


def test_a_judgement_has_its_figures_in_the_direction_of_change() -> None:
    up = PairedSample(before=0.2, after=0.5, differences=(Fraction(1),) * 8 + (Fraction(-1),) * 2)
    down = PairedSample(before=0.5, after=0.2, differences=tuple(-d for d in up.differences))
    judged = RuleV2().judge({"all": up}, LOOK, level=LEVEL)["all"]
    evidence = log_e_value(up.differences)
    assert judged.e_value == pytest.approx(2.718281828459045**evidence)
    assert judged.p_adjusted == pytest.approx(2.0 / judged.e_value)
    mirrored = RuleV2().judge({"all": down}, LOOK, level=LEVEL)["all"]
    assert (mirrored.p_adjusted, mirrored.e_value) == (judged.p_adjusted, judged.e_value)


def test_evidence_beyond_what_json_can_hold_is_capped() -> None:
    huge = PairedSample(before=0.0, after=1.0, differences=(Fraction(1),) * 2000)
    judged = RuleV2().judge({"all": huge}, Selection(), level=LEVEL)["all"]
    assert judged.e_value == pytest.approx(1e300)
    assert judged.verdict is Verdict.IMPROVED


def test_environments_are_corrected_together() -> None:
    """Seven of 20: 2 / 128 = 0.016; times 7 environments 0.109, times 6 0.094."""

    def judged(num_envs: int) -> Verdict:
        old = [r for i in range(num_envs) for r in rows([0.0] * 20, env=f"env{i}")]
        new = rows([1.0] * 7 + [0.0] * 13, env="env0")
        new += [r for i in range(1, num_envs) for r in rows([0.0] * 20, env=f"env{i}")]
        return compare_rows(old, new, pass_threshold=1.0).by_env["env0"].verdict

    assert judged(6) is Verdict.IMPROVED
    assert judged(7) is Verdict.INCONCLUSIVE
    assert ENVIRONMENTS_LEVEL == 0.10


def test_once_the_clearest_environment_is_judged_the_next_has_fewer_beside_it() -> None:
    """Holm: 14 / 1024 for the first of two, then 7 of 7 counts once: 0.016 <= 0.1."""
    old = rows([0.0] * 20, env="a") + rows([0.0] * 20, env="b")
    new = rows([1.0] * 11 + [0.0] * 9, env="a") + rows([1.0] * 7 + [0.0] * 13, env="b")
    table = compare_rows(old, new, pass_threshold=1.0)
    assert table.by_env["a"].p_adjusted == pytest.approx(2 * 2 / 2**11)
    assert table.by_env["b"].p_adjusted == pytest.approx(2 / 2**7)


def test_a_selection_has_a_candidate() -> None:
    with pytest.raises(ValueError, match="at least one candidate"):
        Selection(num_candidates=0)
