"""The words of a verdict, and the parts that a rule reads and returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Protocol

SATURATED_FROM = 0.9
FAILING_UP_TO = 0.05
MIN_TASKS = 10
"""Fewer paired tasks are inconclusive."""


class Verdict(StrEnum):
    """Verdict on the effect of training on a set of tasks."""

    IMPROVED = "improved"
    """More passes, and the rule excludes that chance alone made them."""
    REGRESSED = "regressed"
    """Fewer passes, likewise."""
    SATURATED = "saturated"
    """At least 90 % before and after: nothing left to learn."""
    FAILING = "failing"
    """At most 5 % after training."""
    FLAT = "flat"
    """No significant change; see `detectable` for the change that could have been seen."""
    INCONCLUSIVE = "inconclusive"
    """Too few tasks, also for the change that was seen, or the missing outcomes could change the
    verdict."""
    NO_EVAL = "no_eval"
    """One of the two evaluations is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selection that led to a comparison, which its error rate has to account for."""

    num_candidates: int = 1
    """Checkpoints from which the later evaluation was chosen; 1: it was fixed beforehand, as the
    last checkpoint of a run is."""
    is_complete: bool = True
    """Whether all planned tasks were evaluated. False: somebody looks into an evaluation that goes
    on, or one that was stopped early."""

    def __post_init__(self) -> None:
        """Refuse a selection from nothing."""
        if self.num_candidates < 1:
            raise ValueError("a selection has at least one candidate")


@dataclass(frozen=True, kw_only=True)
class PairedSample:
    """One set of tasks, measured before and after; rates in [0, 1]."""

    before: float | None
    after: float | None
    differences: tuple[Fraction, ...]
    """Change of pass@k of every task with k grades on both sides, in [-1, 1]."""

    @cached_property
    def numbers(self) -> Mapping[Fraction, int]:
        """The number of tasks with each difference: few differences are distinct."""
        return Counter(self.differences)

    @cached_property
    def change(self) -> Fraction:
        """The sum of the differences."""
        return sum((each * number for each, number in self.numbers.items()), Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A rule's word on one sample."""

    verdict: Verdict
    p_adjusted: float | None = None
    """Smallest level at which the observed direction of change is significant, after all
    corrections of the rule; None where the rule corrects nothing."""
    e_value: float | None = None
    """Evidence for the observed direction of change, valid at any time; None where the rule does
    not use it."""


class VerdictRule(Protocol):
    """One version of the rule."""

    @property
    def name(self) -> str:
        """The version, which every verdict names."""
        ...

    def judge(
        self, family: Mapping[str, PairedSample], selection: Selection, *, level: float
    ) -> dict[str, Judgement]:
        """Judge samples that are displayed together.

        Args:
            family: samples by name, such as one per environment.
            selection: how the later evaluation was chosen.
            level: the chance that at least one word IMPROVED of the family is false (likewise for
                REGRESSED), in (0, 1).
        """
        ...

    def one_sided_level(self, selection: Selection, *, level: float, num_samples: int) -> float:
        """Return the level at which the test at the planned end shows a gain of one sample."""
        ...
