"""Rule v2: valid at any look, for the checkpoint chosen from several, and for many environments.

Half of the level is spent on looks during an evaluation (`hillclimb.stats.evidence`), half on the
exact sign-flip test once all planned tasks are there: at its end the rule sees what v1 sees. The
result counts once per candidate checkpoint (Bonferroni), and the samples displayed together are
corrected by Holm's procedure. Each direction has the whole level: a false IMPROVED and a false
REGRESSED are two different errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from hillclimb.stats.evidence import holm, log_e_value
from hillclimb.stats.paired import sign_flip_p_value
from hillclimb.stats.verdicts.verdict import (
    FAILING_UP_TO,
    MIN_TASKS,
    SATURATED_FROM,
    Judgement,
    PairedSample,
    Selection,
    Verdict,
)

VISIBLE_CHANGE = Fraction(1, 10)
"""A mean change from here on that the tasks are too few to show is inconclusive, not flat."""


class RuleV2:
    """Errors per family, not per look, checkpoint and environment."""

    name = "v2"

    def judge(
        self, family: Mapping[str, PairedSample], selection: Selection, *, level: float
    ) -> dict[str, Judgement]:
        """Judge the samples of a family together, as `VerdictRule.judge` says."""
        gains = holm({name: _p_of_gain(sample, selection) for name, sample in family.items()})
        losses = holm({name: _p_of_loss(sample, selection) for name, sample in family.items()})
        return {
            name: _judge(sample, gains[name], losses[name], level)
            for name, sample in family.items()
        }

    def one_sided_level(self, selection: Selection, *, level: float, num_samples: int) -> float:
        """Return what remains of the level for the exact test of the sample corrected most."""
        return level / (2.0 * selection.num_candidates * num_samples)


def log_e_value_of_decision(selection: Selection, *, level: float) -> float:
    """Return the natural logarithm of the e-value from which a look at one sample decides."""
    return math.log(2.0 * selection.num_candidates / level)


def _judge(sample: PairedSample, p_of_gain: float, p_of_loss: float, level: float) -> Judgement:
    has_gained = sample.change >= 0
    numbers = sample.numbers if has_gained else _reversed(sample.numbers)
    return Judgement(
        verdict=_word(sample, p_of_gain, p_of_loss, level),
        p_adjusted=p_of_gain if has_gained else p_of_loss,
        e_value=_finite(log_e_value(numbers)),
    )


def _word(sample: PairedSample, p_of_gain: float, p_of_loss: float, level: float) -> Verdict:
    if sample.before is None or sample.after is None:
        return Verdict.NO_EVAL
    if len(sample.differences) < MIN_TASKS:
        return Verdict.INCONCLUSIVE
    if p_of_loss <= level:
        return Verdict.REGRESSED
    if min(sample.before, sample.after) >= SATURATED_FROM:
        return Verdict.SATURATED
    if p_of_gain <= level:
        return Verdict.IMPROVED
    if sample.after <= FAILING_UP_TO:
        return Verdict.FAILING
    is_visible = abs(sample.change) >= VISIBLE_CHANGE * len(sample.differences)
    return Verdict.INCONCLUSIVE if is_visible else Verdict.FLAT


def _p_of_gain(sample: PairedSample, selection: Selection) -> float:
    """Return the p-value of "no gain" that holds at any look and for the chosen candidate."""
    return _p_value(sample, log_e_value(sample.numbers), selection, is_towards=sample.change > 0)


def _p_of_loss(sample: PairedSample, selection: Selection) -> float:
    """Return the same of "no loss"."""
    log = log_e_value(_reversed(sample.numbers))
    return _p_value(sample, log, selection, is_towards=sample.change < 0)


def _p_value(
    sample: PairedSample, log_e: float, selection: Selection, *, is_towards: bool
) -> float:
    p_value = math.exp(-max(0.0, log_e))
    if selection.is_complete and is_towards:
        p_value = min(p_value, sign_flip_p_value(sample.differences) / 2.0)
    return min(1.0, 2.0 * selection.num_candidates * p_value)


def _reversed(numbers: Mapping[Fraction, int]) -> dict[Fraction, int]:
    return {-difference: number for difference, number in numbers.items()}


def _finite(log: float) -> float:
    """Return the e-value, capped at 10^300: JSON has no infinity."""
    return math.exp(min(log, 300.0 * math.log(10.0)))
