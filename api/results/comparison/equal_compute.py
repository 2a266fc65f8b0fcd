"""Evaluations of two runs after equal steps, rollouts, tokens or FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from api.results.errors import NoLedger, NoSuchEval
from api.results.evals.report import num_candidates
from api.results.evals.store import list_evals
from api.results.ledger import read_ledger
from api.tables import Run
from hillclimb.protocol.payloads.results.compute import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualPair:
    """The steps of the evaluations to compare."""

    steps: tuple[int, int]
    num_candidates: int
    """Pairs of evaluations from which this one may have been chosen by its figures."""


def equal_pair(session: Session, a: Run, b: Run, amount: Amount) -> EqualPair:
    """Return the last evaluation of each run at or below the smaller of the two totals.

    The total of a run is what it had spent at its last evaluation. The evaluation of the run that
    had spent more follows from that of the other one, not from its figures: it was not chosen.

    Raises:
        NoSuchEval: a run has no evaluation, or none at or below the other's total.
        NoLedger: the amounts of a run are not known.
    """
    spent = [_spent_at(session, run, amount) for run in (a, b)]
    totals = [each[max(each)] for each in spent]
    limit = min(totals)
    steps = []
    candidates = 1
    for run, amounts, total in zip((a, b), spent, totals, strict=True):
        within = [step for step, value in amounts.items() if value <= limit]
        if not within:
            raise NoSuchEval(
                f"run {run.id} has no evaluation at or below {limit:.6g} {amount}, the total"
                " of the other run"
            )
        steps.append(max(within))
        if total == limit:
            candidates *= num_candidates(session, run, last=max(within), first=0)
    return EqualPair(steps=(steps[0], steps[1]), num_candidates=candidates)


def _spent_at(session: Session, run: Run, amount: Amount) -> Mapping[int, float]:
    """Return the amount that a run had spent at each step with an evaluation."""
    attempts = {each.step: each.attempt for each in list_evals(session, run.id)}
    if not attempts:
        raise NoSuchEval(f"run {run.id} has no evaluation yet")
    if amount == "steps":
        return {step: float(step) for step in attempts}
    ledger = read_ledger(session, run.id)
    if not ledger.is_complete:
        raise NoLedger(
            f"the trainer of run {run.id} did not count the compute of every step: compare at equal"
            " steps"
        )
    spent = {
        step: ledger.spent_by(attempt=attempt, step=step) for step, attempt in attempts.items()
    }
    if amount == "rollouts":
        return {step: float(each.num_rollouts) for step, each in spent.items()}
    if amount == "tokens":
        return {step: float(each.num_tokens) for step, each in spent.items()}
    flops = {step: each.flops for step, each in spent.items() if each.flops is not None}
    if len(flops) < len(spent):
        raise NoLedger(
            f"the FLOPs of run {run.id} are not known: its model is not, or a server trains it"
        )
    return flops
