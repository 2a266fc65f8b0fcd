"""Two evaluations of the same tasks, of two runs or of one, compared under every decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from sqlalchemy.orm import Session

from api.results.comparison.behaviour import behaviour
from api.results.comparison.config_diff import config_diff
from api.results.comparison.equal_compute import equal_pair
from api.results.comparison.flips import flips
from api.results.errors import NoSuchEval
from api.results.evals.report import (
    AS_SCORED,
    VerdictOptions,
    at_n_facts,
    breakdown_facts,
    compare_evals,
    comparison_facts,
    num_candidates,
)
from api.results.evals.store import count_outcomes, list_evals, no_evaluation
from api.results.ledger import compute_facts, read_ledger
from api.tables import Eval, Run
from hillclimb.protocol.payloads.results.compute import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A run and the step of one of its evaluations; null: its last one."""

    run: Run
    step: int | None = None


def build_comparison(
    session: Session,
    a: Point,
    b: Point,
    options: VerdictOptions = AS_SCORED,
    *,
    at: Amount | None = None,
) -> dict[str, Any]:
    """Return how evaluation b differs from evaluation a.

    A step that is not the last of its run's schedule may have been chosen by its figures, on either
    side: p-values are multiplied by the numbers of evaluations that the schedules plan.

    With `at`, the evaluations are those of `equal_pair`, and the points have no step.

    Raises:
        NoLedger: the runs' compute is not known.
        NoSuchEval: a run has no evaluation, or none at its step, or they share no decoding with k
            rollouts per task.
        NoSuchRescoring: a run was not rescored by the verifier.
        KeyError: there is no such rule.
    """
    k = options.k
    pair = equal_pair(session, a.run, b.run, at) if at else None
    if pair is not None:
        a, b = replace(a, step=pair.steps[0]), replace(b, step=pair.steps[1])
    sides = [_evals_at(session, point, options) for point in (a, b)]
    steps = [next(iter(side.values())).step for side in sides]
    candidates = pair.num_candidates if pair else _candidates(session, (a.run, b.run), steps)
    shared = [name for name in sides[0] if name in sides[1]]
    enough = [
        name for name in shared if min(side[name].n_samples_per_prompt for side in sides) >= k
    ]
    if not enough:
        raise NoSuchEval(f"the two evaluations share no decoding with {k} rollouts per task")
    return {
        "object": "comparison",
        "at": at,
        "a": _side_facts(session, a.run, sides[0]),
        "b": _side_facts(session, b.run, sides[1]),
        "rule": options.rule,
        "k": k,
        "threshold": options.threshold,
        "verifier": options.verifier,
        "num_candidates": candidates,
        "config_diff": config_diff(a.run.spec, b.run.spec),
        "decodings": {
            name: _decoding(session, (sides[0][name], sides[1][name]), candidates, options)
            for name in enough
        },
    }


def _candidates(session: Session, runs: tuple[Run, Run], steps: Sequence[int]) -> int:
    """Return the number of pairs of evaluations from which this one may have been chosen."""
    return prod(
        num_candidates(session, run, last=step, first=0)
        for run, step in zip(runs, steps, strict=True)
    )


def _side_facts(session: Session, run: Run, evals: Mapping[str, Eval]) -> dict[str, Any]:
    """Return the run, the step, and what training had taken by then; null where not known."""
    step, attempt = max((each.step, each.attempt) for each in evals.values())
    ledger = read_ledger(session, run.id)
    spent = ledger.spent_by(attempt=attempt, step=step) if ledger.is_complete else None
    return {
        "run_id": run.id,
        "name": run.name,
        "step": step,
        "spent": None if spent is None else compute_facts(spent),
    }


def _evals_at(session: Session, point: Point, options: VerdictOptions) -> dict[str, Eval]:
    """Return the evaluations of a step by decoding."""
    evals = list_evals(
        session, point.run.id, threshold=options.threshold, verifier=options.verifier
    )
    steps = [evaluation.step for evaluation in evals]
    if not steps:
        raise no_evaluation(point.run)
    step = max(steps) if point.step is None else point.step
    if step not in steps:
        raise NoSuchEval(f"run {point.run.id} has no evaluation at step {step}")
    return {each.decoding: each for each in evals if each.step == step}


def _decoding(
    session: Session, evals: tuple[Eval, Eval], candidates: int, options: VerdictOptions
) -> dict[str, Any]:
    verifier = options.verifier
    first, second = (
        count_outcomes(session, each.run_id, [each], verifier)[each.step, each.decoding]
        for each in evals
    )
    table = compare_evals(
        evals, (first, second), num_candidates=candidates, k=options.k, rule=options.rule
    )
    tasks = [{(c.env_key, c.task_key) for c in counts} for counts in (first, second)]
    behaviours = [behaviour(session, each, verifier) for each in evals]
    return {
        "temperatures": [each.temperature for each in evals],
        "pass_thresholds": [each.pass_threshold for each in evals],
        "stopped_early": [each.stopped_early for each in evals],
        "all": comparison_facts(table.overall)
        | {"pass_at_n": at_n_facts(evals, (first, second), options.k)},
        "environments": {
            key: comparison_facts(each)
            | {"pass_at_n": at_n_facts(evals, (first, second), options.k, env_key=key)}
            for key, each in table.by_env.items()
        },
        **breakdown_facts(evals, (first, second), options.k),
        "num_tasks_of_a_alone": len(tasks[0] - tasks[1]),
        "num_tasks_of_b_alone": len(tasks[1] - tasks[0]),
        "behaviour": {"a": behaviours[0], "b": behaviours[1]},
        **flips(session, evals, (first, second), verifier),
    }
