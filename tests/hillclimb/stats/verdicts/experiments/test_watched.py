"""The rule of experiments: thresholds that are met, missed, or undecided."""

from __future__ import annotations

import pytest

from hillclimb.stats.verdicts.experiments.watched import (
    ExperimentWord,
    Figure,
    Operator,
    Threshold,
    ThresholdReading,
    configuration_word,
    experiment_word,
    read_threshold,
)
from hillclimb.stats.verdicts.verdict import Verdict

MET, MISSED, UNDECIDED = ThresholdReading.MET, ThresholdReading.MISSED, ThresholdReading.UNDECIDED
CONFIRMED, REFUTED, INCONCLUSIVE = (
    ExperimentWord.CONFIRMED,
    ExperimentWord.REFUTED,
    ExperimentWord.INCONCLUSIVE,
)


@pytest.mark.parametrize(
    ("operator", "bound", "is_change", "figure", "reading"),
    [
        # A value with an interval, and one without.
        (">", 0.25, False, (0.4, (0.3, 0.5), None), MET),
        (">", 0.25, False, (0.3, (0.2, 0.4), None), UNDECIDED),
        (">", 0.25, False, (0.1, (0.0, 0.25), None), MISSED),
        (">=", 0.25, False, (0.1, (0.0, 0.25), None), UNDECIDED),
        ("<", 0.25, False, (0.1, (0.0, 0.2), None), MET),
        (">", 0.25, False, (0.26, None, None), MET),
        (">", 0.25, False, (0.25, None, None), MISSED),
        # A gain that is demanded.
        (">=", 0.05, True, (0.1, (0.02, 0.18), Verdict.IMPROVED), MET),
        (">=", 0.05, True, (0.1, (0.02, 0.18), None), MET),
        (">=", 0.05, True, (0.1, (0.02, 0.18), Verdict.FLAT), UNDECIDED),
        (">=", 0.05, True, (0.1, (-0.02, 0.22), Verdict.IMPROVED), UNDECIDED),
        (">=", 0.05, True, (0.03, (0.01, 0.06), Verdict.IMPROVED), UNDECIDED),
        (">=", 0.05, True, (0.02, (0.01, 0.04), Verdict.IMPROVED), MISSED),
        (">=", 0.05, True, (-0.1, (-0.3, 0.1), Verdict.REGRESSED), UNDECIDED),
        (">=", 0.05, True, (-0.1, (-0.3, 0.04), Verdict.FLAT), MISSED),
        (">", 0.0, True, (0.04, (0.01, 0.07), Verdict.IMPROVED), MET),
        (">", 0.0, True, (0.04, (0.0, 0.07), Verdict.IMPROVED), UNDECIDED),
        ("<", 0.0, True, (-0.04, (-0.07, 0.0), Verdict.REGRESSED), UNDECIDED),
        ("<", 0.0, True, (-0.04, (-0.07, -0.01), Verdict.IMPROVED), UNDECIDED),
        # A loss that is allowed: no word is asked, the interval must exclude a larger loss.
        (">=", -0.02, True, (0.0, (-0.01, 0.01), Verdict.FLAT), MET),
        (">=", -0.02, True, (0.0, (-0.04, 0.04), Verdict.FLAT), UNDECIDED),
        # A fall that is demanded.
        ("<", -0.05, True, (-0.1, (-0.2, -0.02), Verdict.REGRESSED), MET),
        ("<", -0.05, True, (-0.1, (-0.2, 0.02), Verdict.REGRESSED), UNDECIDED),
        ("<", -0.05, True, (0.1, (-0.2, 0.2), Verdict.IMPROVED), UNDECIDED),
        # No figure, and a change without an interval.
        (">", 0.0, True, (0.5, None, None), UNDECIDED),
        (">", 0.0, False, (None, None, None), UNDECIDED),
    ],
)
def test_a_threshold_is_read_against_the_interval(
    operator: Operator,
    bound: float,
    is_change: bool,
    figure: tuple[float | None, tuple[float, float] | None, Verdict | None],
    reading: ThresholdReading,
) -> None:
    value, interval, word = figure
    threshold = Threshold(operator=operator, bound=bound, is_change=is_change)
    answer, why = read_threshold(threshold, Figure(value=value, interval=interval, word=word))
    assert answer is reading, why
    assert why


@pytest.mark.parametrize(
    ("operator", "at", "above", "below"),
    [(">", False, True, False), (">=", True, True, False), ("<", False, False, True),
     ("<=", True, False, True)],
)  # fmt: skip
def test_a_bound_is_read_as_its_operator_says(
    operator: Operator, at: bool, above: bool, below: bool
) -> None:
    threshold = Threshold(operator=operator, bound=0.25, is_change=False)
    assert [threshold.satisfied_by(value) for value in (0.25, 0.5, 0.0)] == [at, above, below]
    assert threshold.is_lower is above
    assert not threshold.demands_change


def test_a_comparison_that_disagrees_is_named() -> None:
    threshold = Threshold(operator=">=", bound=0.05, is_change=True)
    figure = Figure(value=0.1, interval=(0.02, 0.18), word=Verdict.FLAT)
    _, why = read_threshold(threshold, figure)
    assert why == "the paired comparison says FLAT"


@pytest.mark.parametrize(
    ("readings", "word"),
    [
        ((MET, MET), CONFIRMED),
        ((MET, UNDECIDED), INCONCLUSIVE),
        ((MET, MISSED), REFUTED),
        ((UNDECIDED, MISSED), REFUTED),
        ((), INCONCLUSIVE),
    ],
)
def test_one_missed_threshold_refutes_a_configuration(
    readings: tuple[ThresholdReading, ...], word: ExperimentWord
) -> None:
    assert configuration_word(readings) is word


def test_one_confirmed_configuration_confirms_and_all_refute() -> None:
    assert experiment_word([REFUTED, CONFIRMED, INCONCLUSIVE]) is CONFIRMED
    assert experiment_word([REFUTED, REFUTED]) is REFUTED
    assert experiment_word([REFUTED, INCONCLUSIVE]) is INCONCLUSIVE
    assert experiment_word([]) is INCONCLUSIVE
