"""Verdict on an evaluation that goes on, looked at after every task of a fixed random order.

Short rollouts end first, and they pass more often: an order of completion would favour gains. So
the tasks have an order that was fixed before, and a look sees a complete beginning of it: all
rollouts of these tasks, and of no other. What is decided, and after which task, depends on the
outcomes alone, however many rollouts run at once. Outcomes of later tasks only tell whether a
decision is certain before those in flight have ended: a task without an outcome counts as the worst
one, which keeps the e-value below what it will be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from hillclimb.stats.evidence import log_e_value
from hillclimb.stats.pass_rate import TaskCount, exact_pass_at_k
from hillclimb.stats.verdicts.compare import LEVEL, Counts, compare, shared_tasks
from hillclimb.stats.verdicts.rule_v2 import RuleV2, log_e_value_of_decision
from hillclimb.stats.verdicts.stopping.futility import DecisionChance
from hillclimb.stats.verdicts.verdict import MIN_TASKS, Selection, Verdict

MIN_FUTILE_TASKS = 3 * MIN_TASKS
"""Fewer tasks are never futile."""

Differences = Mapping[Fraction, int]
"""Numbers of tasks by their change of pass@1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The end of an evaluation whose remaining tasks are not needed."""

    cause: Literal["decided", "futile"]
    verdict: Verdict
    """Word of pass@1 over all tasks at that moment."""
    num_tasks: int
    """The first tasks of the order, which are complete (count)."""


class SequentialComparison:
    """Compares pass@1 of a growing evaluation with a complete earlier one, by rule v2."""

    def __init__(
        self,
        before: Counts,
        planned: Sequence[tuple[str, str]],
        *,
        num_candidates: int = 1,
        futility: float | None = None,
    ) -> None:
        """`planned` are environment and key of all tasks of the growing evaluation, in order.

        With `futility`, an evaluation ends too whose chance of a decision is below it.
        """
        self.decision: Decision | None = None
        self._before = {(c.env_key, c.task_key): c for c in before}
        self._old = [_pass_share(self._before.get(key)) for key in planned]
        self._selection = Selection(num_candidates=num_candidates, is_complete=False)
        self._bar = log_e_value_of_decision(self._selection, level=LEVEL)
        self._first: list[TaskCount] = []
        self._later: dict[int, TaskCount] = {}
        self._changes: dict[int, Fraction | None] = {}
        """Of all tasks that were added, by their place; None: one side has no grade."""
        self._differences: Counter[Fraction] = Counter()
        """Of the first tasks."""
        self._futility = futility
        self._chance = DecisionChance(
            planned=sum(old is not None for old in self._old),
            one_sided_level=RuleV2().one_sided_level(self._selection, level=LEVEL, num_samples=1),
        )

    @property
    def num_planned(self) -> int:
        """Tasks of the complete evaluation."""
        return len(self._old)

    def add(self, index: int, count: TaskCount) -> None:
        """Add the task at a place of the order, and look if it continues the beginning."""
        self._later[index] = count
        self._changes[index] = _difference(self._old[index], _pass_share(count))
        while self.decision is None and len(self._first) in self._later:
            self._first.append(self._later.pop(len(self._first)))
            self._look()

    def is_foreseeable(self, num_begun: int) -> bool:
        """Return True if the first `num_begun` tasks decide however those in flight end."""
        if self.decision is not None:
            return True
        return any(self._is_certain(num_begun, is_gain=is_gain) for is_gain in (True, False))

    def _look(self) -> None:
        """Decide on the first tasks; a complete evaluation is the report's to judge."""
        difference = self._changes[len(self._first) - 1]
        if difference is not None:
            self._differences[difference] += 1
            self._chance.add(difference)
        if len(self._first) == self.num_planned:
            return
        if any(self._has_evidence(self._differences, is_gain=gain) for gain in (True, False)):
            word = self._word()
            if word in (Verdict.IMPROVED, Verdict.REGRESSED):
                self._decide("decided", word)
        if self.decision is None and self._is_futile():
            self._decide("futile", self._word())

    def _has_evidence(self, differences: Differences, *, is_gain: bool) -> bool:
        """Tell whether the e-value of a gain, or of a loss, reaches the rule's bar."""
        signed = {each if is_gain else -each: number for each, number in differences.items()}
        if sum(each * number for each, number in signed.items()) < self._bar:
            # No capital exceeds exp(change): log(1 + x) is at most x, and stakes are below 1.
            return False
        return log_e_value(signed) >= self._bar

    def _is_certain(self, num_begun: int, *, is_gain: bool) -> bool:
        """Tell whether the worst end of the tasks in flight leaves enough evidence.

        Looked at is the beginning in which the change is largest then. The first task after the
        complete ones is in flight, so every longer beginning has one.
        """
        worst, sign = Fraction(0 if is_gain else 1), 1.0 if is_gain else -1.0
        later = [
            self._changes[i] if i in self._changes else _difference(self._old[i], worst)
            for i in range(len(self._first), num_begun)
        ]
        change, best, end = 0.0, 0.0, 0
        for number, difference in enumerate(later, 1):
            change += sign * float(difference or 0)
            if change > best:
                best, end = change, number
        if not end:
            return False
        added = Counter(difference for difference in later[:end] if difference is not None)
        return self._has_evidence(_sums(self._differences, added), is_gain=is_gain)

    def _is_futile(self) -> bool:
        if self._futility is None or len(self._first) < MIN_FUTILE_TASKS:
            return False
        return self._chance.value < self._futility

    def _word(self) -> Verdict:
        """Return the rule's word on the first tasks; missing outcomes may prevent a decision."""
        before, after = shared_tasks(list(self._before.values()), self._first)
        table = compare(before, after, selection=self._selection, rule=RuleV2.name)
        return table.overall.verdict

    def _decide(self, cause: Literal["decided", "futile"], word: Verdict) -> None:
        self.decision = Decision(cause=cause, verdict=word, num_tasks=len(self._first))


def _sums(first: Differences, more: Differences) -> Differences:
    return {each: first.get(each, 0) + more.get(each, 0) for each in {*first, *more}}


def _difference(before: Fraction | None, after: Fraction | None) -> Fraction | None:
    return None if before is None or after is None else after - before


def _pass_share(count: TaskCount | None) -> Fraction | None:
    """Return pass@1 of a task; None without a grade."""
    if count is None or not count.num_graded:
        return None
    return exact_pass_at_k(count.num_graded, count.num_passed, 1)
