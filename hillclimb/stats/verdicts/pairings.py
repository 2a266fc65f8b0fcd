"""Verdicts that a table of pass rates allows: over all pairings of its tasks before and after.

A paired test needs to know which tasks passed. A table says how many: 14 of 30 before and 21 after
may be 7 tasks gained and none lost (p = 0.016), or 16 gained and 9 lost (p = 0.23). The p-value of
a change rises with every further pair of a gained and a lost task, and so does the adjusted one
with that of any other environment; so the two ends of every range are those of the fewest and of
the most tasks lost, everywhere at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hillclimb.stats.paired import mcnemar_exact
from hillclimb.stats.verdicts.compare import ENVIRONMENTS_LEVEL, LEVEL, RULES, VERDICT_RULE
from hillclimb.stats.verdicts.printed import (
    PassCounts,
    PrintedRow,
    Total,
    lost_range,
    possible_counts,
)
from hillclimb.stats.verdicts.rule_v2 import VISIBLE_CHANGE
from hillclimb.stats.verdicts.verdict import (
    FAILING_UP_TO,
    MIN_TASKS,
    SATURATED_FROM,
    Judgement,
    PairedSample,
    Selection,
    Verdict,
    VerdictRule,
)

Range = tuple[float, float]
"""The least and the largest value."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class Pairing:
    """Counts, and how many tasks passed before and failed after."""

    counts: PassCounts
    num_lost: int

    @property
    def num_gained(self) -> int:
        """Tasks that failed before and passed after."""
        return self.counts.after - self.counts.before + self.num_lost

    @property
    def p_value(self) -> float:
        """Two-sided p-value of McNemar's exact test."""
        return mcnemar_exact(self.num_gained, self.num_lost)

    def sample(self) -> PairedSample:
        """Return the sample that a rule judges."""
        unchanged = self.counts.num_tasks - self.num_gained - self.num_lost
        return PairedSample(
            before=self.counts.before / self.counts.num_tasks,
            after=self.counts.after / self.counts.num_tasks,
            differences=(Fraction(1),) * self.num_gained
            + (Fraction(-1),) * self.num_lost
            + (Fraction(0),) * unchanged,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleVerdicts:
    """A row of a printed table, with all that its pairings allow."""

    name: str
    before: str
    """As printed."""
    after: str
    counts: tuple[PassCounts, ...]
    """All numbers of tasks and passes that the row may stand for; none for rates over all
    environments that are not those of the rows."""
    num_lost: tuple[int, int] | None
    p_value: Range | None
    """Two-sided, for this row alone."""
    p_adjusted: Range | None
    """After the rule's corrections; None under v1."""
    verdicts: tuple[Verdict, ...]
    """Every word that a pairing allows, that of the most significant pairing first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleTable:
    """The verdicts that a printed table allows."""

    rows: tuple[PossibleVerdicts, ...]
    overall: PossibleVerdicts | None
    """None where the table prints no rate over all environments, and does not determine it."""
    rule: str


def judge_printed(
    rows: Sequence[PrintedRow],
    overall: PrintedRow | None = None,
    *,
    max_tasks: int,
    rule: str = VERDICT_RULE,
) -> PossibleTable:
    """Judge a printed table over all counts and pairings that it may stand for.

    The comparison counts as planned: one checkpoint, one look, one rollout per task. In a row's
    range the other environments take their own most, and least, significant pairing; where several
    numbers of tasks are possible that may be more than one table allows at once.

    Args:
        rows: one per environment, with different names.
        overall: the rates over all tasks of the rows.
        max_tasks: most tasks of a row whose number is not known.
        rule: name of the rule.

    Raises:
        KeyError: there is no such rule.
        PrintedTableError: a row stands for no counts, or the rows for too many sums.
    """
    possible = possible_counts(rows, overall, max_tasks=max_tasks)
    pairings = {name: _extremes(counts) for name, counts in possible.rows.items()}
    ranges = _judge(pairings, RULES[rule], level=ENVIRONMENTS_LEVEL)
    judged = tuple(
        _described(row.name, row, possible.rows[row.name], ranges[row.name]) for row in rows
    )
    return PossibleTable(
        rows=judged, overall=_judge_overall(possible.totals, overall, RULES[rule]), rule=rule
    )


def _judge_overall(
    totals: Sequence[Total], printed: PrintedRow | None, rule: VerdictRule
) -> PossibleVerdicts | None:
    if not totals and printed is None:
        return None
    pairings = [
        Pairing(total.counts, num_lost)
        for total in totals
        for num_lost in (total.fewest_lost, total.most_lost)
    ]
    ranges = _judge({ALL: pairings}, rule, level=LEVEL)[ALL] if pairings else _Ranges()
    return _described(ALL, printed, [total.counts for total in totals], ranges)


def _described(
    name: str, printed: PrintedRow | None, counts: Sequence[PassCounts], ranges: _Ranges
) -> PossibleVerdicts:
    return PossibleVerdicts(
        name=name,
        before=printed.before.text if printed else "",
        after=printed.after.text if printed else "",
        counts=tuple(counts),
        num_lost=ranges.num_lost,
        p_value=ranges.p_value,
        p_adjusted=ranges.p_adjusted,
        verdicts=ranges.verdicts,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranges:
    num_lost: tuple[int, int] | None = None
    p_value: Range | None = None
    p_adjusted: Range | None = None
    verdicts: tuple[Verdict, ...] = ()


def _extremes(counts: Sequence[PassCounts]) -> list[Pairing]:
    """Return the pairings of the fewest and of the most tasks lost."""
    return [Pairing(each, num_lost) for each in counts for num_lost in lost_range(each)]


def _judge(
    pairings: Mapping[str, Sequence[Pairing]], rule: VerdictRule, *, level: float
) -> dict[str, _Ranges]:
    """Judge the rows of a family: each in its extremes, with the others in theirs."""
    ordered = {
        name: sorted(each, key=lambda pairing: pairing.p_value) for name, each in pairings.items()
    }
    families = [{name: each[end].sample() for name, each in ordered.items()} for end in (0, -1)]
    judged = [rule.judge(family, Selection(), level=level) for family in families]

    def word(name: str, pairing: Pairing, end: int) -> Verdict:
        if pairing is ordered[name][end]:
            return judged[end][name].verdict
        family = {**families[end], name: pairing.sample()}
        return rule.judge(family, Selection(), level=level)[name].verdict

    return {
        name: _Ranges(
            num_lost=(min(p.num_lost for p in each), max(p.num_lost for p in each)),
            p_value=(each[0].p_value, each[-1].p_value),
            p_adjusted=_range_of([judgements[name] for judgements in judged]),
            verdicts=tuple(
                dict.fromkeys(
                    word(name, group[end], end) for end in (0, -1) for group in _alike(each)
                )
            ),
        )
        for name, each in ordered.items()
    }


def _alike(ordered: Sequence[Pairing]) -> list[list[Pairing]]:
    """Group pairings whose words differ by significance alone, keeping their order."""
    groups: dict[tuple[bool, bool, bool, bool], list[Pairing]] = {}
    for pairing in ordered:
        counts = pairing.counts
        rates = counts.before / counts.num_tasks, counts.after / counts.num_tasks
        key = (
            counts.num_tasks < MIN_TASKS,
            min(rates) >= SATURATED_FROM,
            rates[1] <= FAILING_UP_TO,
            abs(counts.after - counts.before) >= VISIBLE_CHANGE * counts.num_tasks,
        )
        groups.setdefault(key, []).append(pairing)
    return list(groups.values())


def _range_of(judgements: Sequence[Judgement]) -> Range | None:
    values = [each.p_adjusted for each in judgements if each.p_adjusted is not None]
    return (min(values), max(values)) if values else None
