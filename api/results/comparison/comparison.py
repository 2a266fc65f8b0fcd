"""Two evaluations of the same tasks, of two runs or of one, compared under every decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from api.results.comparison.behaviour import behaviour
from api.results.comparison.config_diff import config_diff
from api.results.comparison.flips import flips
from api.results.errors import NoSuchEval
from api.results.evals.report import compare_evals, comparison_facts, num_candidates
from api.results.evals.store import count_outcomes, list_evals
from api.tables import Eval, Run
from hillclimb.stats.verdicts.compare import VERDICT_RULE


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A run and the step of one of its evaluations; null: its last one."""

    run: Run
    step: int | None = None


def build_comparison(
    session: Session, a: Point, b: Point, *, k: int = 1, rule: str = VERDICT_RULE
) -> dict[str, Any]:
    """Return how evaluation b differs from evaluation a.

    A step that is not the last of its run's schedule may have been chosen by its figures, on either
    side: p-values are multiplied by the numbers of evaluations that the schedules plan.

    Raises:
        NoSuchEval: a run has no evaluation, or none at its step, or they share no decoding with k
            rollouts per task.
        KeyError: there is no such rule.
    """
    sides = [_evals_at(session, point) for point in (a, b)]
    steps = [next(iter(side.values())).step for side in sides]
    candidates = num_candidates(session, a.run, last=steps[0], first=0)
    candidates *= num_candidates(session, b.run, last=steps[1], first=0)
    shared = [name for name in sides[0] if name in sides[1]]
    enough = [
        name for name in shared if min(side[name].n_samples_per_prompt for side in sides) >= k
    ]
    if not enough:
        raise NoSuchEval(f"the two evaluations share no decoding with {k} rollouts per task")
    return {
        "object": "comparison",
        "a": {"run_id": a.run.id, "name": a.run.name, "step": steps[0]},
        "b": {"run_id": b.run.id, "name": b.run.name, "step": steps[1]},
        "rule": rule,
        "k": k,
        "num_candidates": candidates,
        "config_diff": config_diff(a.run.spec, b.run.spec),
        "decodings": {
            name: _decoding(session, (sides[0][name], sides[1][name]), candidates, k=k, rule=rule)
            for name in enough
        },
    }


def _evals_at(session: Session, point: Point) -> dict[str, Eval]:
    """Return the evaluations of a step by decoding."""
    evals = list_evals(session, point.run.id)
    steps = [evaluation.step for evaluation in evals]
    if not steps:
        raise NoSuchEval(f"run {point.run.id} has no evaluation yet")
    step = max(steps) if point.step is None else point.step
    if step not in steps:
        raise NoSuchEval(f"run {point.run.id} has no evaluation at step {step}")
    return {each.decoding: each for each in evals if each.step == step}


def _decoding(
    session: Session, evals: tuple[Eval, Eval], candidates: int, *, k: int, rule: str
) -> dict[str, Any]:
    first, second = (
        count_outcomes(session, each.run_id, [each])[each.step, each.decoding] for each in evals
    )
    table = compare_evals(evals, (first, second), num_candidates=candidates, k=k, rule=rule)
    tasks = [{(c.env_key, c.task_key) for c in counts} for counts in (first, second)]
    behaviours = [behaviour(session, each) for each in evals]
    return {
        "temperatures": [each.temperature for each in evals],
        "pass_thresholds": [each.pass_threshold for each in evals],
        "stopped_early": [each.stopped_early for each in evals],
        "all": comparison_facts(table.overall),
        "environments": {key: comparison_facts(each) for key, each in table.by_env.items()},
        "num_tasks_of_a_alone": len(tasks[0] - tasks[1]),
        "num_tasks_of_b_alone": len(tasks[1] - tasks[0]),
        "behaviour": {"a": behaviours[0], "b": behaviours[1]},
        **flips(session, evals, (first, second)),
    }
