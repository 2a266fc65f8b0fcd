"""Rule v1: a fixed number of tasks, one look, one checkpoint. Kept to read old verdicts.

Its words IMPROVED are too many where somebody takes the best of several checkpoints or looks during
an evaluation: with 300 tasks and nothing learned, 11.7 % and 12.7 % of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

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

SIGNIFICANCE = 0.05


class RuleV1:
    """Two-sided p < 0.05 for each sample, whatever is displayed beside it."""

    name = "v1"

    def judge(
        self, family: Mapping[str, PairedSample], selection: Selection, *, level: float
    ) -> dict[str, Judgement]:
        """Judge each sample by itself; `selection` and `level` change nothing."""
        return {name: Judgement(verdict=_decide(sample)) for name, sample in family.items()}

    def one_sided_level(self, selection: Selection, *, level: float, num_samples: int) -> float:
        """Return half of the two-sided significance."""
        return SIGNIFICANCE / 2.0


def _decide(sample: PairedSample) -> Verdict:
    if sample.before is None or sample.after is None:
        return Verdict.NO_EVAL
    return decide(sample.before, sample.after, sample.differences)


def decide(before: float, after: float, differences: Sequence[Fraction]) -> Verdict:
    """Return the word for two pass rates and the paired differences."""
    if len(differences) < MIN_TASKS:
        return Verdict.INCONCLUSIVE
    change = sum(differences)
    significant = sign_flip_p_value(differences) < SIGNIFICANCE
    if significant and change < 0:
        return Verdict.REGRESSED
    if min(before, after) >= SATURATED_FROM:
        return Verdict.SATURATED
    if significant and change > 0:
        return Verdict.IMPROVED
    return Verdict.FAILING if after <= FAILING_UP_TO else Verdict.FLAT
