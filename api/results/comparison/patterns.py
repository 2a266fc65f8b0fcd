"""Failure patterns of two evaluations of a run: counts, rates, change and exemplars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from api.results.comparison.searches import choose_version, read_searches
from api.results.errors import NoSuchEval
from api.results.evals.store import list_evals, no_evaluation
from api.tables import Eval, Run
from hillclimb.stats.pass_rate import PassRate
from hillclimb.stats.trajectories.patterns.registry import PATTERNS
from hillclimb.stats.verdicts.issue_rule import (
    ISSUE_RULE,
    SymptomChange,
    SymptomCount,
    judge_symptom,
)

NUM_EXEMPLARS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternFilters:
    """Evaluations to look at; null: the first and the last, the first decoding of the last."""

    before: int | None = None
    after: int | None = None
    decoding: str | None = None
    env_key: str | None = None
    version: int | None = None
    """Version of the detectors; null: the newest that searched all rollouts that any did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """One task's rollouts of an evaluation that were searched, in the order of their samples."""

    env_key: str
    task_key: str
    rollout_ids: Sequence[str]
    showing: Mapping[str, Sequence[str]]
    """Rollout ids that show a pattern, by its name."""


def build_patterns(session: Session, run_id: str, filters: PatternFilters) -> dict[str, Any]:
    """Return each pattern's rates before and after, most frequent after first.

    A rate is the share of rollouts, averaged over tasks. Changes are judged by the rule of issues.
    Rollouts that the version did not search (older trainers, not started) are left out.

    Raises:
        MixedDetectors: several versions searched the rollouts, none of them all.
        NoSuchEval: the run has no evaluation at one of these steps under the decoding.
    """
    evals = list_evals(session, run_id)
    if not evals:
        raise no_evaluation(session.get_one(Run, run_id))
    last = _find(evals, filters.after, filters.decoding, newest=True)
    first = _find(evals, filters.before, last.decoding, newest=False)
    version = filters.version
    if version is None:
        version = choose_version(session, (first, last), env_key=filters.env_key)
    sides = [_read(session, each, version, filters.env_key) for each in (first, last)]
    if first.stopped_early is not None or last.stopped_early is not None:
        sides = _shared(sides)
    rows = [_facts(name, *sides) for name in PATTERNS]
    rows.sort(key=lambda row: -(row["after"] or 0.0))
    return {
        "run_id": run_id,
        "before_step": first.step,
        "after_step": last.step,
        "decoding": last.decoding,
        "environment": filters.env_key,
        "version": version,
        "rule": ISSUE_RULE,
        "num_searched_before": sum(len(task.rollout_ids) for task in sides[0]),
        "num_searched_after": sum(len(task.rollout_ids) for task in sides[1]),
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


def _read(
    session: Session, evaluation: Eval, version: int | None, env_key: str | None
) -> list[Rollouts]:
    searched: dict[tuple[str, str], list[str]] = defaultdict(list)
    showing: dict[tuple[str, str], dict[str, list[str]]] = {}
    for each in read_searches(session, evaluation, version=version, env_key=env_key):
        if each.patterns is None:
            continue
        task = each.env_key, each.task_key
        searched[task].append(each.rollout_id)
        names = showing.setdefault(task, defaultdict(list))
        for name in each.patterns:
            names[name].append(each.rollout_id)
    return [
        Rollouts(env_key=env, task_key=task, rollout_ids=ids, showing=showing[env, task])
        for (env, task), ids in searched.items()
    ]


def _shared(sides: Sequence[Sequence[Rollouts]]) -> list[list[Rollouts]]:
    """Return the tasks that both evaluations have."""
    keys = [{(task.env_key, task.task_key) for task in side} for side in sides]
    both = keys[0] & keys[1]
    return [[task for task in side if (task.env_key, task.task_key) in both] for side in sides]


def _facts(name: str, before: Sequence[Rollouts], after: Sequence[Rollouts]) -> dict[str, Any]:
    pattern = PATTERNS[name]
    change = judge_symptom(_counts(before, name), _counts(after, name))
    rollout_ids = [rollout for task in after for rollout in task.showing.get(name, ())]
    return {
        "name": name,
        "severity": pattern.severity.value,
        "definition": pattern.definition,
        "num_before": sum(len(task.showing.get(name, ())) for task in before),
        "num_after": len(rollout_ids),
        "before": change.before.value,
        "before_interval": _interval(change.before),
        "after": change.after.value,
        "after_interval": _interval(change.after),
        "delta": change.delta,
        "p_value": change.p_value,
        "status": _status(change),
        "exemplars": rollout_ids[:NUM_EXEMPLARS],
    }


def _counts(tasks: Sequence[Rollouts], name: str) -> list[SymptomCount]:
    return [
        SymptomCount(
            env_key=task.env_key,
            task_key=task.task_key,
            num_known=len(task.rollout_ids),
            num_showing=len(task.showing.get(name, ())),
            num_unknown=0,
            first_shows=task.rollout_ids[0] in task.showing.get(name, ()),
        )
        for task in tasks
    ]


def _interval(rate: PassRate) -> list[float]:
    return [rate.low, rate.high]


def _status(change: SymptomChange) -> str:
    """Return the status of an issue with this symptom, or the word for one that is not there."""
    before, after = change.before.value, change.after.value
    if before is None or after is None:
        return "unknown"
    return change.status.value if before or after else "absent"
