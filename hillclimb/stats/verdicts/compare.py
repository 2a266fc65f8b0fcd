"""Comparison of two evaluations task by task, with the verdict of a versioned rule.

If outcomes are missing, the rule judges four times, with the missing ones of each side counted as
fails and as passes; a sample whose four words differ is inconclusive. The four contain, for gains
and for losses, the completion that is worst for all samples at once, so the rule's error rates hold
whatever the missing outcomes would have been.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product

from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.stats.paired import sign_flip_p_value
from hillclimb.stats.pass_rate import (
    PassRate,
    TaskCount,
    count_tasks,
    exact_pass_at_k,
    mean_pass_at_k,
    pass_rate,
)
from hillclimb.stats.power import detectable_paired, min_changed, paired_size
from hillclimb.stats.verdicts.rule_v1 import RuleV1
from hillclimb.stats.verdicts.rule_v2 import RuleV2
from hillclimb.stats.verdicts.verdict import (
    MIN_TASKS,
    Judgement,
    PairedSample,
    Selection,
    Verdict,
    VerdictRule,
)

RULES: Mapping[str, VerdictRule] = {rule.name: rule for rule in (RuleV1(), RuleV2())}
VERDICT_RULE = "v2"
"""The rule of new verdicts; older ones stay readable under theirs."""
LEVEL, ENVIRONMENTS_LEVEL = 0.05, 0.10
"""Chance of a false IMPROVED: over all tasks (and over the two groups of templates), and anywhere
among the environments."""
MOST_TASKS = 1_000_000
"""No number of tasks above this is recommended."""

Counts = Sequence[TaskCount]
Pairs = Mapping[str, tuple[Counts, Counts]]
"""Counts before and after, by the name of the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """pass@k of two evaluations of the same tasks under the same decoding."""

    before: PassRate
    after: PassRate
    delta: float | None
    """Mean change of pass@k over paired tasks, in [-1, 1]."""
    num_paired: int
    """Tasks with k grades on both sides."""
    num_gained: int
    """Paired tasks whose pass@k rose."""
    num_lost: int
    """Paired tasks whose pass@k fell."""
    p_value: float | None
    """Two-sided and for this comparison alone, as if it were the only one and nobody had looked
    before: exact McNemar for one rollout per task, else the sign-flip test."""
    p_adjusted: float | None
    """The p-value that the verdict reads: after the rule's corrections for looks, candidates and
    samples, in the direction of change; None under v1."""
    e_value: float | None
    """Evidence in the direction of change, valid at any look; None under v1."""
    detectable: float | None
    """Smallest gain that as many paired tasks would show with power 0.8, given the observed share
    of losses; None where they show none."""
    num_tasks_to_decide: int | None
    """Paired tasks that would show the observed change with power 0.8; None without a change."""
    verdict: Verdict
    rule: str = VERDICT_RULE


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTable:
    """Comparisons per environment, over all tasks, and split by template."""

    by_env: Mapping[str, Comparison]
    overall: Comparison
    seen_templates: Comparison
    held_out_templates: Comparison
    selection: Selection
    rule: str
    k: int


def compare_rows(
    before: Iterable[OutcomeRow],
    after: Iterable[OutcomeRow],
    *,
    pass_threshold: float,
    selection: Selection | None = None,
    rule: str = VERDICT_RULE,
    k: int = 1,
) -> ComparisonTable:
    """Compare two evaluations of one decoding, given their stored rows."""
    return compare(
        count_tasks(before, pass_threshold=pass_threshold),
        count_tasks(after, pass_threshold=pass_threshold),
        selection=selection,
        rule=rule,
        k=k,
    )


def compare(
    before: Counts,
    after: Counts,
    *,
    selection: Selection | None = None,
    rule: str = VERDICT_RULE,
    k: int = 1,
) -> ComparisonTable:
    """Compare pass@k of two evaluations of one decoding, given their tasks' counts.

    Tasks with fewer than k graded rollouts on a side are in no pair.

    Raises:
        KeyError: there is no such rule.
        ValueError: k is below 1.
    """
    if k < 1:
        raise ValueError(f"pass@{k} is undefined")
    whole = _Judging(rule=RULES[rule], selection=selection or Selection(), level=LEVEL, k=k)
    envs = sorted({count.env_key for count in (*before, *after)})
    of_envs = {
        key: ([c for c in before if c.env_key == key], [c for c in after if c.env_key == key])
        for key in envs
    }
    of_templates = {
        name: (
            [c for c in before if c.held_out_template is held_out],
            [c for c in after if c.held_out_template is held_out],
        )
        for name, held_out in (("seen", False), ("held_out", True))
    }
    templates = _compare_family(of_templates, whole)
    return ComparisonTable(
        by_env=_compare_family(of_envs, replace(whole, level=ENVIRONMENTS_LEVEL)),
        overall=compare_overall(before, after, selection=whole.selection, rule=rule, k=k),
        seen_templates=templates["seen"],
        held_out_templates=templates["held_out"],
        selection=whole.selection,
        rule=rule,
        k=k,
    )


def compare_overall(
    before: Counts, after: Counts, *, selection: Selection, rule: str = VERDICT_RULE, k: int = 1
) -> Comparison:
    """Return `overall` of `compare`, without the tables of environments and templates."""
    judging = _Judging(rule=RULES[rule], selection=selection, level=LEVEL, k=k)
    return _compare_family({"all": (before, after)}, judging)["all"]


def verdict_overall(before: Counts, after: Counts, *, selection: Selection) -> Verdict:
    """Return the word of `compare_overall`, at a third of its cost."""
    judging = _Judging(rule=RULES[VERDICT_RULE], selection=selection, level=LEVEL, k=1)
    sides = (before, after)
    sample = paired_sample(before, after, 1)
    if None in (sample.before, sample.after):
        return Verdict.NO_EVAL
    return _words_over_bounds({"all": sides}, judging)["all"]


def shared_tasks(before: Counts, after: Counts) -> tuple[Counts, Counts]:
    """Return the counts of the tasks that both evaluations have."""
    keys = {(c.env_key, c.task_key) for c in before} & {(c.env_key, c.task_key) for c in after}
    return (
        [count for count in before if (count.env_key, count.task_key) in keys],
        [count for count in after if (count.env_key, count.task_key) in keys],
    )


def paired_sample(before: Counts, after: Counts, k: int) -> PairedSample:
    """Return the differences of the tasks with k grades on both sides, and the rate of each."""
    old = {(c.env_key, c.task_key): c for c in before if c.num_graded >= k}
    pairs = [(old.get((c.env_key, c.task_key)), c) for c in after if c.num_graded >= k]
    return PairedSample(
        before=mean_pass_at_k(before, k=k),
        after=mean_pass_at_k(after, k=k),
        differences=tuple(
            _difference((a.num_graded, a.num_passed), (b.num_graded, b.num_passed), k)
            for a, b in pairs
            if a is not None
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judging:
    """Rule, selection, level and k by which a family of samples is judged."""

    rule: VerdictRule
    selection: Selection
    level: float
    k: int

    def judge(self, family: Mapping[str, PairedSample]) -> dict[str, Judgement]:
        return self.rule.judge(family, self.selection, level=self.level)


def _compare_family(pairs: Pairs, judging: _Judging) -> dict[str, Comparison]:
    """Compare the samples that are displayed together."""
    measured = {name: paired_sample(*sides, judging.k) for name, sides in pairs.items()}
    graded = {name: s for name, s in measured.items() if None not in (s.before, s.after)}
    observed = judging.judge(graded)
    words = _words_over_bounds({name: pairs[name] for name in graded}, judging)
    return {
        name: _comparison(
            sides,
            measured[name],
            replace(
                observed.get(name, Judgement(verdict=Verdict.NO_EVAL)),
                verdict=words.get(name, Verdict.NO_EVAL),
            ),
            judging,
            num_samples=max(1, len(graded)),
        )
        for name, sides in pairs.items()
    }


def _words_over_bounds(pairs: Pairs, judging: _Judging) -> dict[str, Verdict]:
    """Return each sample's word if all completions of the missing outcomes agree on it."""
    words: dict[str, set[Verdict]] = {name: set() for name in pairs}
    sides = [side for both in pairs.values() for side in both]
    is_complete = not any(count.num_missing for side in sides for count in side)
    for fills in [(None, None)] if is_complete else product((False, True), repeat=2):
        family = {
            name: paired_sample(
                _filled(before, passed=fills[0]), _filled(after, passed=fills[1]), judging.k
            )
            for name, (before, after) in pairs.items()
        }
        for name, judgement in judging.judge(family).items():
            words[name].add(judgement.verdict)
    return {
        name: votes.pop() if len(votes) == 1 else Verdict.INCONCLUSIVE
        for name, votes in words.items()
    }


def _comparison(
    sides: tuple[Counts, Counts],
    sample: PairedSample,
    judgement: Judgement,
    judging: _Judging,
    *,
    num_samples: int,
) -> Comparison:
    differences = sample.differences
    gain, lost = _moments(sample)
    level = judging.rule.one_sided_level(
        judging.selection, level=judging.level, num_samples=num_samples
    )
    return Comparison(
        before=pass_rate(sides[0], k=judging.k),
        after=pass_rate(sides[1], k=judging.k),
        delta=float(sample.change / len(differences)) if differences else None,
        num_paired=len(differences),
        num_gained=sum(difference > 0 for difference in differences),
        num_lost=sum(difference < 0 for difference in differences),
        p_value=sign_flip_p_value(differences) if differences else None,
        p_adjusted=judgement.p_adjusted if differences else None,
        e_value=judgement.e_value if differences else None,
        detectable=detectable_paired(len(differences), lost=lost, level=level),
        num_tasks_to_decide=_size(gain, lost, level),
        verdict=judgement.verdict,
        rule=judging.rule.name,
    )


def _moments(sample: PairedSample) -> tuple[float, float]:
    """Return the size of the mean change, and the share of tasks that changed the other way.

    With one rollout per task these are counts. With several, the share is the one that gives
    differences of -1, 0 and 1 the same mean and the same mean square.
    """
    num_tasks = len(sample.differences)
    if not num_tasks:
        return 0.0, 0.0
    mean = abs(sample.change) / num_tasks
    squares = (each * each * number for each, number in sample.numbers.items())
    square = sum(squares, Fraction(0)) / num_tasks
    return float(mean), float(max(Fraction(0), square - mean) / 2)


def _size(gain: float, lost: float, level: float) -> int | None:
    if gain == 0.0:
        return None
    needed = max(math.ceil(paired_size(gain, lost, level=level)), min_changed(level), MIN_TASKS)
    return needed if needed <= MOST_TASKS else None


def _filled(counts: Counts, *, passed: bool | None) -> Counts:
    """Return the counts with every missing rollout graded; None leaves them as they are."""
    return counts if passed is None else [count.with_missing(passed=passed) for count in counts]


@lru_cache(maxsize=4096)
def _difference(before: tuple[int, int], after: tuple[int, int], k: int) -> Fraction:
    """Return the change of pass@k between two numbers of grades and passes."""
    return exact_pass_at_k(*after, k) - exact_pass_at_k(*before, k)
