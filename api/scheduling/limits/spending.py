"""Enforces budgets on running runs: a warning at each share, then a pause with a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import budgets
from api.clusters.budgets import Allowance, allowances
from api.runs.journal import Draft, append
from api.runs.status import DesiredState
from api.scheduling import control
from api.tables import Run, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.backend.skypilot import BudgetSpec

WARNED = "budget.warned"
DEFAULT_SHARES: tuple[float, ...] = BudgetSpec.model_fields["warn_at"].default
"""Shares at which a project's budget is warned of, for runs without a budget of their own."""


def runs_to_watch(session: Session, *, now: datetime) -> Sequence[str]:
    """Return ids of the runs with clusters that have used enough of a budget for a warning."""
    shares = budgets.largest_shares(session, now=now)
    if not shares:
        return ()
    query = select(Run.id, Run.spec["budget"]).where(Run.id.in_(list(shares))).order_by(Run.id)
    return [
        run_id
        for run_id, budget in session.execute(query)
        if shares[run_id] >= min(1.0, *_shares(budget))
    ]


def watch(session: Session, run: Run, *, now: datetime) -> bool:
    """Warn of, or pause, a locked run by its budgets; True when it is paused now."""
    if run.desired_state != DesiredState.RUNNING.value or run.status not in control.STOPPABLE:
        return False
    bounds = allowances(session, run, now=now)
    if not bounds:
        return False
    for each in bounds:
        _warn(session, run, each, now=now)
    nearest = max(bounds, key=lambda each: each.share)
    if not nearest.is_used_up:
        return False
    message = f"The budget is used up ({nearest.summary()}): extend it, then resume."
    control.pause_for_reason(
        session, run, (ReasonCode.BUDGET_EXHAUSTED, message), actor="service", now=now
    )
    return True


def _warn(session: Session, run: Run, allowance: Allowance, *, now: datetime) -> None:
    """Warn once per share and budget; an extended or replaced budget is another one."""
    warned = _warned_share(session, run, allowance)
    due = [share for share in shares_of(run) if warned < share <= allowance.share]
    if not due:
        return
    data = {
        "owner": allowance.owner,
        "budget": allowance.facts(),
        "share": due[-1],
        "used": allowance.share,
        "message": f"{due[-1]:.0%} of the budget is used ({allowance.summary()}).",
    }
    draft = Draft(type=WARNED, at=now, attempt=run.attempt or None, data=data)
    append(session, run, [draft])


def _warned_share(session: Session, run: Run, allowance: Allowance) -> float:
    """Return the largest share of this budget with a warning; 0.0 for none."""
    query = select(RunEvent.data).where(RunEvent.run_id == run.id, RunEvent.type == WARNED)
    identity = (allowance.owner, allowance.facts())
    shares = [
        data["share"]
        for data in session.scalars(query)
        if (data["owner"], data.get("budget")) == identity
    ]
    return max(shares, default=0.0)


def shares_of(run: Run) -> Sequence[float]:
    """Return the shares of its budget at which a run gets a warning."""
    return _shares(run.spec.get("budget"))


def _shares(budget: Mapping[str, Any] | None) -> Sequence[float]:
    return tuple(budget["warn_at"]) if budget else DEFAULT_SHARES
