"""Thresholds that an experiment watches, and the verdict on its hypothesis that follows from them.

Rule `experiment-v1`. A threshold is *met* when the figure satisfies it and chance does not explain
that, *missed* when its whole 95 % interval violates it, and *undecided* otherwise:

* A threshold on a value is met when the whole interval satisfies it. A single run's series has no
  interval between runs; its value decides.
* A threshold on a change from the baseline is met when the change satisfies it, its interval lies
  on the right side of zero (of the threshold, where that allows a loss), and, where a change is
  demanded of pass@1, the pooled paired comparison says so too (IMPROVED, or REGRESSED where a
  fall is demanded). That comparison alone decides nothing: it knows no other seeds.

A configuration is confirmed when all its thresholds are met, refuted when one is missed, else
inconclusive. The hypothesis is confirmed when one configuration is, refuted when all are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from hillclimb.stats.verdicts.verdict import Verdict

EXPERIMENT_RULE = "experiment-v1"
Operator = Literal[">", ">=", "<", "<="]


class ThresholdReading(StrEnum):
    """The reading of a watched threshold."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


class ExperimentWord(StrEnum):
    """The verdict on a hypothesis."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A bound on a value, or on its change from the baseline."""

    operator: Operator
    bound: float
    is_change: bool

    def satisfied_by(self, value: float) -> bool:
        """Tell whether a value satisfies the bound."""
        match self.operator:
            case ">":
                return value > self.bound
            case ">=":
                return value >= self.bound
            case "<":
                return value < self.bound
            case "<=":
                return value <= self.bound

    @property
    def is_lower(self) -> bool:
        """True if larger values satisfy it."""
        return self.operator in (">", ">=")

    @property
    def demands_change(self) -> bool:
        """True if no change at all would violate it."""
        return self.is_change and not self.satisfied_by(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure to hold against a threshold."""

    value: float | None
    interval: tuple[float, float] | None
    """95 %; None for a single run's series."""
    word: Verdict | None = None
    """Of the pooled paired comparison; None where there is none."""


def read_threshold(threshold: Threshold, figure: Figure) -> tuple[ThresholdReading, str]:
    """Return whether the threshold is met, and the sentence that says why."""
    if figure.value is None:
        return ThresholdReading.UNDECIDED, "there is no figure"
    satisfied = threshold.satisfied_by(figure.value)
    if figure.interval is None:
        if threshold.is_change:
            return (
                ThresholdReading.UNDECIDED,
                "a change needs two runs on each side, or an evaluation",
            )
        reading = ThresholdReading.MET if satisfied else ThresholdReading.MISSED
        return reading, "by its value alone: a single run has no interval"
    violates = not any(threshold.satisfied_by(end) for end in figure.interval)
    if violates:
        return ThresholdReading.MISSED, "the whole 95 % interval violates it"
    if threshold.demands_change:
        return _read_demand(threshold, figure.interval, figure.word, satisfied=satisfied)
    if all(threshold.satisfied_by(end) for end in figure.interval):
        return ThresholdReading.MET, "the whole 95 % interval satisfies it"
    return ThresholdReading.UNDECIDED, "the 95 % interval contains the threshold"


def experiment_word(words: Sequence[ExperimentWord]) -> ExperimentWord:
    """Return the verdict over the configurations of an experiment."""
    if ExperimentWord.CONFIRMED in words:
        return ExperimentWord.CONFIRMED
    if words and all(word is ExperimentWord.REFUTED for word in words):
        return ExperimentWord.REFUTED
    return ExperimentWord.INCONCLUSIVE


def configuration_word(readings: Sequence[ThresholdReading]) -> ExperimentWord:
    """Return the verdict on one configuration."""
    if ThresholdReading.MISSED in readings:
        return ExperimentWord.REFUTED
    if readings and all(reading is ThresholdReading.MET for reading in readings):
        return ExperimentWord.CONFIRMED
    return ExperimentWord.INCONCLUSIVE


def _read_demand(
    threshold: Threshold,
    interval: tuple[float, float],
    word: Verdict | None,
    *,
    satisfied: bool,
) -> tuple[ThresholdReading, str]:
    towards = Verdict.IMPROVED if threshold.is_lower else Verdict.REGRESSED
    if not satisfied:
        return (
            ThresholdReading.UNDECIDED,
            "the change is too small, but its 95 % interval reaches it",
        )
    low, high = interval
    if (low if threshold.is_lower else -high) <= 0.0:
        return ThresholdReading.UNDECIDED, "the 95 % interval contains no change"
    if word is not None and word is not towards:
        return ThresholdReading.UNDECIDED, f"the paired comparison says {word.value.upper()}"
    return ThresholdReading.MET, "the change satisfies it, and its 95 % interval excludes no change"
