"""The before/after report: response of its route and content of `demo-report.json`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from api.results.errors import NoSuchEval
from api.results.evals.failures import failure_table
from api.results.evals.store import (
    FailureGroup,
    count_failures,
    count_outcomes,
    list_evals,
    no_evaluation,
    training_seconds,
)
from api.results.evals.summary import BREAKDOWNS
from api.tables import Eval, Run
from hillclimb.stats.pass_rate import Dimension, PassRate, TaskCount
from hillclimb.stats.verdicts.breakdown import Change, change_of, paired_groups
from hillclimb.stats.verdicts.compare import (
    VERDICT_RULE,
    Comparison,
    ComparisonTable,
    compare,
    compare_overall,
    shared_tasks,
    verdict_overall,
)
from hillclimb.stats.verdicts.verdict import Selection, Verdict

Fallback = Callable[[set[int]], int]
"""Chooses the step if the request names none: `min` or `max`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One evaluation: its row, its tasks and its failures."""

    evaluation: Eval
    counts: Sequence[TaskCount]
    failures: Sequence[FailureGroup]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictOptions:
    """The way in which two evaluations are counted and judged."""

    rule: str = VERDICT_RULE
    """Version of the verdicts' rule."""
    k: int = 1
    """Compare pass@k."""
    threshold: float | None = None
    """Replaces the pass threshold of both evaluations; null: each has its own."""
    verifier: str | None = None
    """Takes the grades of the rescoring by this version of the verifier; null: those stored."""


AS_SCORED = VerdictOptions()


def build_report(
    session: Session,
    run_id: str,
    *,
    before: int | None = None,
    after: int | None = None,
    options: VerdictOptions = AS_SCORED,
) -> dict[str, Any]:
    """Return the comparison of two evaluations under every decoding that both ran.

    `before` and `after` are steps; by default the first and the last evaluation. Decodings with
    fewer than k rollouts per task are left out.

    Raises:
        NoSuchEval: the run has no evaluation, none at one of these steps, or none with k rollouts
            per task.
        NoSuchRescoring: no evaluation was rescored by the verifier.
        KeyError: there is no such rule.
    """
    k, rule = options.k, options.rule
    evals = list_evals(session, run_id, threshold=options.threshold, verifier=options.verifier)
    run = session.get_one(Run, run_id)
    if not evals:
        raise no_evaluation(run)
    first = _step_of(evals, before, fallback=min)
    last = _step_of(evals, after, fallback=max)
    candidates = num_candidates(session, run, last=last, first=first)
    sampled = [e for e in evals if e.n_samples_per_prompt >= k]
    pairs = _pairs(session, run_id, sampled, steps=(first, last), verifier=options.verifier)
    if not pairs and k > 1:
        raise NoSuchEval(f"no decoding of these evaluations has {k} rollouts per task")
    tables = {
        name: _compare_sides(sides, num_candidates=candidates, rule=rule, k=k)
        for name, sides in pairs.items()
    }
    env_keys = sorted({key for table in tables.values() for key in table.by_env})
    decodings = {name: _overall(*sides, tables[name], k) for name, sides in pairs.items()}
    fixed = {
        "object": "report",
        "run_id": run_id,
        "before_step": first,
        "after_step": last,
        "rule": rule,
        "k": k,
        "threshold": options.threshold,
        "verifier": options.verifier,
        "num_candidates": candidates,
        "decodings": list(pairs),
        "environments": {
            key: {
                name: _of_env(*sides, key, tables[name].by_env[key], k)
                for name, sides in pairs.items()
                if key in tables[name].by_env
            }
            for key in env_keys
        },
        "training_seconds": training_seconds(session, run_id),
    }
    # A decoding may have the name of a fixed key, which then wins.
    return decodings | fixed


def compare_evals(
    evals: tuple[Eval, Eval],
    counts: tuple[Sequence[TaskCount], Sequence[TaskCount]],
    *,
    num_candidates: int,
    rule: str = VERDICT_RULE,
    k: int = 1,
) -> ComparisonTable:
    """Compare two evaluations of one decoding by a rule; see `compare`.

    If one of them was stopped early, over the tasks that both have, and without the test that needs
    all planned tasks.
    """
    before, after = comparable(evals, counts)
    return compare(before, after, selection=_selection(evals, num_candidates), rule=rule, k=k)


def compare_all_tasks(
    evals: tuple[Eval, Eval],
    counts: tuple[Sequence[TaskCount], Sequence[TaskCount]],
    *,
    num_candidates: int,
) -> Comparison:
    """Return `overall` of `compare_evals`, without its tables."""
    before, after = comparable(evals, counts)
    return compare_overall(before, after, selection=_selection(evals, num_candidates))


def judge_all_tasks(
    evals: tuple[Eval, Eval],
    counts: tuple[Sequence[TaskCount], Sequence[TaskCount]],
    *,
    num_candidates: int,
) -> Verdict:
    """Return the verdict of `compare_all_tasks`."""
    before, after = comparable(evals, counts)
    return verdict_overall(before, after, selection=_selection(evals, num_candidates))


def _selection(evals: tuple[Eval, Eval], num_candidates: int) -> Selection:
    """Return how the later evaluation was selected."""
    is_complete = all(evaluation.stopped_early is None for evaluation in evals)
    return Selection(num_candidates=num_candidates, is_complete=is_complete)


def comparable(
    evals: tuple[Eval, Eval], counts: tuple[Sequence[TaskCount], Sequence[TaskCount]]
) -> tuple[Sequence[TaskCount], Sequence[TaskCount]]:
    """Return the counts to compare: of the tasks that both have, if one evaluation ended early."""
    if all(evaluation.stopped_early is None for evaluation in evals):
        return counts
    return shared_tasks(*counts)


def breakdown_facts(
    evals: tuple[Eval, Eval],
    counts: tuple[Sequence[TaskCount], Sequence[TaskCount]],
    k: int,
) -> dict[str, dict[str, Any]]:
    """Return the change of pass@k by difficulty and modality as JSON: estimates, no tests."""
    before, after = comparable(evals, counts)
    return {
        key: {
            name: change_facts(change_of(*sides, k=k)) | {"pass_at_n": at_n_facts(evals, sides, k)}
            for name, sides in paired_groups(before, after, dimension).items()
        }
        for key, dimension in BREAKDOWNS.items()
        if dimension is not Dimension.ENVIRONMENT
    }


def at_n_facts(
    evals: tuple[Eval, Eval],
    counts: tuple[Sequence[TaskCount], Sequence[TaskCount]],
    k: int,
    *,
    env_key: str | None = None,
) -> dict[str, Any] | None:
    """Return the change of pass@n over all tasks, or those of one environment, as JSON.

    n is the number of rollouts per task that both evaluations have; null where k is n already.
    """
    most = min(evaluation.n_samples_per_prompt for evaluation in evals)
    if most <= k:
        return None
    before, after = (
        [count for count in side if env_key is None or count.env_key == env_key]
        for side in comparable(evals, counts)
    )
    return change_facts(change_of(before, after, k=most))


def _compare_sides(
    sides: tuple[Side, Side], *, num_candidates: int, rule: str, k: int
) -> ComparisonTable:
    old, new = sides
    return compare_evals(
        (old.evaluation, new.evaluation),
        (old.counts, new.counts),
        num_candidates=num_candidates,
        rule=rule,
        k=k,
    )


def _step_of(
    evals: Sequence[Eval], step: int | None, *, fallback: Callable[[set[int]], int]
) -> int:
    steps = {evaluation.step for evaluation in evals}
    if step is not None and step not in steps:
        raise NoSuchEval(f"the run has no evaluation at step {step}")
    return fallback(steps) if step is None else step


def _pairs(
    session: Session,
    run_id: str,
    evals: Sequence[Eval],
    *,
    steps: tuple[int, int],
    verifier: str | None,
) -> dict[str, tuple[Side, Side]]:
    chosen = [evaluation for evaluation in evals if evaluation.step in steps]
    counts = count_outcomes(session, run_id, chosen, verifier)
    sides = {
        (evaluation.step, evaluation.decoding): Side(
            evaluation=evaluation,
            counts=counts[evaluation.step, evaluation.decoding],
            failures=count_failures(session, run_id, evaluation, verifier),
        )
        for evaluation in chosen
    }
    return {
        decoding: (sides[steps[0], decoding], sides[steps[1], decoding])
        for decoding in dict.fromkeys(evaluation.decoding for evaluation in chosen)
        if (steps[0], decoding) in sides and (steps[1], decoding) in sides
    }


def num_candidates(session: Session, run: Run, *, last: int, first: int) -> int:
    """Return from how many evaluations after step `first` the one at step `last` may be chosen.

    The one after the last step of the schedule was fixed before the run: 1. Any other may have been
    chosen by its figures, also the latest one of a run that somebody stopped: it counts as one of
    all evaluations that the schedule plans. Nothing is known about the schedule of an imported
    run: each of its evaluations counts.
    """
    if run.origin is not None and not run.origin["is_schedule_known"]:
        return (
            sum(step > first for step in {each.step for each in list_evals(session, run.id)}) or 1
        )
    total, interval = run.spec["schedule"]["total_steps"], run.spec["eval"]["interval"]
    if last == total or run.spec["kind"] != "train":
        return 1
    planned = set(range(interval, total, interval)) if interval else set()
    later = planned | {total} | {each.step for each in list_evals(session, run.id)}
    return sum(step > first for step in later) or 1


def _overall(old: Side, new: Side, table: ComparisonTable, k: int) -> dict[str, Any]:
    evals, counts = (old.evaluation, new.evaluation), (old.counts, new.counts)
    facts = comparison_facts(table.overall)
    return facts | {
        "pass_at_n": at_n_facts(evals, counts, k),
        "temperature": new.evaluation.temperature,
        "n_samples_per_prompt": new.evaluation.n_samples_per_prompt,
        "pass_threshold": new.evaluation.pass_threshold,
        "before_stopped_early": old.evaluation.stopped_early,
        "after_stopped_early": new.evaluation.stopped_early,
        "seen_templates": comparison_facts(table.seen_templates),
        "held_out_templates": comparison_facts(table.held_out_templates),
        **breakdown_facts(evals, counts, k),
        "failures": failure_table(old.failures, new.failures),
    }


def _of_env(old: Side, new: Side, key: str, comparison: Comparison, k: int) -> dict[str, Any]:
    evals, counts = (old.evaluation, new.evaluation), (old.counts, new.counts)
    return comparison_facts(comparison) | {
        "pass_at_n": at_n_facts(evals, counts, k, env_key=key),
        "failures": failure_table(
            [group for group in old.failures if group.env_key == key],
            [group for group in new.failures if group.env_key == key],
        ),
    }


def change_facts(change: Change) -> dict[str, Any]:
    """Return a change as JSON: shares in [0, 1], `n` tasks graded on both sides."""
    return {
        "k": change.before.k,
        **_rates_facts(change.before, change.after),
        "delta": change.delta,
        "n": change.num_paired,
        "num_gained": change.num_gained,
        "num_lost": change.num_lost,
    }


def comparison_facts(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON: shares in [0, 1], `n` tasks graded on both sides."""
    return {
        **_rates_facts(comparison.before, comparison.after),
        "delta": comparison.delta,
        "p_value": comparison.p_value,
        "p_adjusted": comparison.p_adjusted,
        "e_value": comparison.e_value,
        "detectable": comparison.detectable,
        "num_tasks_to_decide": comparison.num_tasks_to_decide,
        "n": comparison.num_paired,
        "num_gained": comparison.num_gained,
        "num_lost": comparison.num_lost,
        "verdict": comparison.verdict.value,
    }


def _rates_facts(before: PassRate, after: PassRate) -> dict[str, Any]:
    return {
        "before": before.value,
        "after": after.value,
        "before_interval": _interval(before),
        "after_interval": _interval(after),
        "before_bounds": _bounds(before),
        "after_bounds": _bounds(after),
        "before_coverage": before.coverage,
        "after_coverage": after.coverage,
    }


def _interval(rate: PassRate) -> list[float]:
    return [rate.low, rate.high]


def _bounds(rate: PassRate) -> list[float]:
    return [rate.bound_if_failed, rate.bound_if_passed]
