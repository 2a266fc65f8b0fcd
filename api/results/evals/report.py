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
    training_seconds,
)
from api.tables import Eval
from hillclimb.stats.pass_rate import PassRate, TaskCount
from hillclimb.stats.verdict import VERDICT_RULE, Comparison, compare

Fallback = Callable[[set[int]], int]
"""Chooses the step if the request names none: `min` or `max`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One evaluation: its row, its tasks and its failures."""

    evaluation: Eval
    counts: Sequence[TaskCount]
    failures: Sequence[FailureGroup]


def build_report(
    session: Session, run_id: str, *, before: int | None = None, after: int | None = None
) -> dict[str, Any]:
    """Return the comparison of two evaluations under every decoding that both ran.

    `before` and `after` are steps; by default the first and the last evaluation.

    Raises:
        NoSuchEval: the run has no evaluation, or none at one of these steps.
    """
    evals = list_evals(session, run_id)
    first = _step_of(evals, before, fallback=min)
    last = _step_of(evals, after, fallback=max)
    pairs = _pairs(session, run_id, evals, steps=(first, last))
    env_keys = sorted({count.env_key for old, _ in pairs.values() for count in old.counts})
    decodings = {name: _overall(old, new) for name, (old, new) in pairs.items()}
    fixed = {
        "object": "report",
        "run_id": run_id,
        "before_step": first,
        "after_step": last,
        "rule": VERDICT_RULE,
        "decodings": list(pairs),
        "environments": {
            key: {name: _of_env(old, new, key) for name, (old, new) in pairs.items()}
            for key in env_keys
        },
        "training_seconds": training_seconds(session, run_id),
    }
    # A decoding may have the name of a fixed key, which then wins.
    return decodings | fixed


def _step_of(
    evals: Sequence[Eval], step: int | None, *, fallback: Callable[[set[int]], int]
) -> int:
    steps = {evaluation.step for evaluation in evals}
    if not steps:
        raise NoSuchEval("the run has no evaluation yet")
    if step is not None and step not in steps:
        raise NoSuchEval(f"the run has no evaluation at step {step}")
    return fallback(steps) if step is None else step


def _pairs(
    session: Session, run_id: str, evals: Sequence[Eval], *, steps: tuple[int, int]
) -> dict[str, tuple[Side, Side]]:
    chosen = [evaluation for evaluation in evals if evaluation.step in steps]
    counts = count_outcomes(session, run_id, chosen)
    sides = {
        (evaluation.step, evaluation.decoding): Side(
            evaluation=evaluation,
            counts=counts[evaluation.step, evaluation.decoding],
            failures=count_failures(session, run_id, evaluation),
        )
        for evaluation in chosen
    }
    return {
        decoding: (sides[steps[0], decoding], sides[steps[1], decoding])
        for decoding in dict.fromkeys(evaluation.decoding for evaluation in chosen)
        if (steps[0], decoding) in sides and (steps[1], decoding) in sides
    }


def _overall(old: Side, new: Side) -> dict[str, Any]:
    facts = comparison_facts(compare(old.counts, new.counts))
    return facts | {
        "temperature": new.evaluation.temperature,
        "n_samples_per_prompt": new.evaluation.n_samples_per_prompt,
        "pass_threshold": new.evaluation.pass_threshold,
        "seen_templates": _of_templates(old, new, held_out=False),
        "held_out_templates": _of_templates(old, new, held_out=True),
        "failures": failure_table(old.failures, new.failures),
    }


def _of_env(old: Side, new: Side, key: str) -> dict[str, Any]:
    facts = comparison_facts(
        compare(
            [count for count in old.counts if count.env_key == key],
            [count for count in new.counts if count.env_key == key],
        )
    )
    return facts | {
        "failures": failure_table(
            [group for group in old.failures if group.env_key == key],
            [group for group in new.failures if group.env_key == key],
        )
    }


def _of_templates(old: Side, new: Side, *, held_out: bool) -> dict[str, Any]:
    return comparison_facts(
        compare(
            [count for count in old.counts if count.held_out_template is held_out],
            [count for count in new.counts if count.held_out_template is held_out],
        )
    )


def comparison_facts(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON: shares in [0, 1], `n` tasks graded on both sides."""
    return {
        "before": comparison.before.value,
        "after": comparison.after.value,
        "before_interval": _interval(comparison.before),
        "after_interval": _interval(comparison.after),
        "before_bounds": _bounds(comparison.before),
        "after_bounds": _bounds(comparison.after),
        "before_coverage": comparison.before.coverage,
        "after_coverage": comparison.after.coverage,
        "delta": comparison.delta,
        "p_value": comparison.p_value,
        "n": comparison.num_paired,
        "num_gained": comparison.num_gained,
        "num_lost": comparison.num_lost,
        "verdict": comparison.verdict.value,
    }


def _interval(rate: PassRate) -> list[float]:
    return [rate.low, rate.high]


def _bounds(rate: PassRate) -> list[float]:
    return [rate.bound_if_failed, rate.bound_if_passed]
