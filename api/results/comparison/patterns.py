"""Failure patterns of two evaluations of a run: counts, rates, change and exemplars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.results.errors import NoSuchEval
from api.results.evals.report import compare_evals
from api.results.evals.store import list_evals, no_evaluation, of_eval
from api.tables import Eval, OutcomeRecord, Run
from hillclimb.stats.pass_rate import PassRate, TaskCount
from hillclimb.stats.trajectories.patterns.registry import PATTERNS
from hillclimb.stats.verdicts.compare import Comparison

NUM_EXEMPLARS = 3
LEVEL = 0.05
FIXED_RATE = 0.05
"""Share of rollouts below which a pattern that became rarer counts as fixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternFilters:
    """Evaluations to look at; null: the first and the last, the first decoding of the last."""

    before: int | None = None
    after: int | None = None
    decoding: str | None = None
    env_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """One task's rollouts of an evaluation."""

    env_key: str
    task_key: str
    num_searched: int
    showing: Mapping[str, Sequence[str]]
    """Rollout ids that show a pattern, by its name."""


def build_patterns(session: Session, run_id: str, filters: PatternFilters) -> dict[str, Any]:
    """Return each pattern's rates before and after, most frequent after first.

    A rate is the share of rollouts, averaged over tasks. Changes are tested task by task, as those
    of pass rates are. Rollouts that nobody searched (older trainers, not started) are left out.

    Raises:
        NoSuchEval: the run has no evaluation at one of these steps under the decoding.
    """
    evals = list_evals(session, run_id)
    if not evals:
        raise no_evaluation(session.get_one(Run, run_id))
    last = _find(evals, filters.after, filters.decoding, newest=True)
    first = _find(evals, filters.before, last.decoding, newest=False)
    sides = [_read(session, run_id, each, filters.env_key) for each in (first, last)]
    rows = [_facts(name, (first, last), *sides) for name in PATTERNS]
    rows.sort(key=lambda row: -(row["after"] or 0.0))
    return {
        "run_id": run_id,
        "before_step": first.step,
        "after_step": last.step,
        "decoding": last.decoding,
        "environment": filters.env_key,
        "versions": _versions(session, run_id, (first, last)),
        "num_searched_before": sum(task.num_searched for task in sides[0]),
        "num_searched_after": sum(task.num_searched for task in sides[1]),
        "data": rows,
    }


def _find(evals: Sequence[Eval], step: int | None, decoding: str | None, *, newest: bool) -> Eval:
    chosen = [
        each
        for each in evals
        if (step is None or each.step == step) and (decoding is None or each.decoding == decoding)
    ]
    if not chosen:
        place = "" if step is None else f" at step {step}"
        under = f" under {decoding!r}" if decoding is not None else ""
        raise NoSuchEval(f"the run has no evaluation{place}{under}")
    edge = (max if newest else min)(each.step for each in chosen)
    return next(each for each in chosen if each.step == edge)


def _read(session: Session, run_id: str, evaluation: Eval, env_key: str | None) -> list[Rollouts]:
    query = select(
        OutcomeRecord.env_key,
        OutcomeRecord.task_key,
        OutcomeRecord.rollout_id,
        OutcomeRecord.patterns,
    ).where(*of_eval(run_id, evaluation).where(), OutcomeRecord.patterns_version.is_not(None))
    if env_key is not None:
        query = query.where(OutcomeRecord.env_key == env_key)
    query = query.order_by(OutcomeRecord.env_key, OutcomeRecord.task_key, OutcomeRecord.rollout_id)
    searched: dict[tuple[str, str], int] = defaultdict(int)
    showing: dict[tuple[str, str], dict[str, list[str]]] = {}
    for env, task, rollout_id, patterns in session.execute(query):
        searched[env, task] += 1
        names = showing.setdefault((env, task), defaultdict(list))
        for name in patterns or ():
            names[name].append(rollout_id)
    return [
        Rollouts(env_key=env, task_key=task, num_searched=number, showing=showing[env, task])
        for (env, task), number in searched.items()
    ]


def _versions(session: Session, run_id: str, evals: Sequence[Eval]) -> list[int]:
    """Return the versions of the detectors that searched these evaluations."""
    versions: set[int] = set()
    for evaluation in evals:
        query = select(func.distinct(OutcomeRecord.patterns_version)).where(
            *of_eval(run_id, evaluation).where(), OutcomeRecord.patterns_version.is_not(None)
        )
        versions |= set(session.scalars(query))
    return sorted(versions)


def _facts(
    name: str, evals: tuple[Eval, Eval], before: Sequence[Rollouts], after: Sequence[Rollouts]
) -> dict[str, Any]:
    pattern = PATTERNS[name]
    whole = compare_evals(
        evals, (_counts(before, name), _counts(after, name)), num_candidates=1
    ).overall
    rollout_ids = [rollout for task in after for rollout in task.showing.get(name, ())]
    return {
        "name": name,
        "severity": pattern.severity.value,
        "definition": pattern.definition,
        "num_before": _total(before, name),
        "num_after": len(rollout_ids),
        "before": whole.before.value,
        "before_interval": _interval(whole.before),
        "after": whole.after.value,
        "after_interval": _interval(whole.after),
        "delta": whole.delta,
        "p_value": whole.p_value,
        "status": _status(whole),
        "exemplars": rollout_ids[:NUM_EXEMPLARS],
    }


def _total(tasks: Sequence[Rollouts], name: str) -> int:
    return sum(len(task.showing.get(name, ())) for task in tasks)


def _counts(tasks: Sequence[Rollouts], name: str) -> list[TaskCount]:
    """Return the tasks' counts in which showing the pattern stands for passing."""
    return [
        TaskCount(
            task_key=task.task_key,
            env_key=task.env_key,
            template="",
            held_out_template=False,
            num_graded=task.num_searched,
            num_passed=len(task.showing.get(name, ())),
            num_missing=0,
        )
        for task in tasks
    ]


def _interval(rate: PassRate) -> list[float]:
    return [rate.low, rate.high]


def _status(comparison: Comparison) -> str:
    """Return the word of the team's issue table for a pattern's change."""
    after, delta, p_value = comparison.after.value, comparison.delta, comparison.p_value
    if after is None or delta is None:
        return "unknown"
    if not after and not comparison.before.value:
        return "absent"
    if p_value is None or p_value >= LEVEL:
        return "needs_analysis"
    if delta > 0:
        return "worse"
    return "fixed" if after < FIXED_RATE else "improved"
