"""What budgets do to runs that spend: a warning at each share, then a rest with a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import budgets
from api.clusters.budgets import Allowance, allowances
from api.runs import control
from api.runs.journal import Draft, append
from api.runs.status import DesiredState
from api.tables import Run, RunEvent
from trainer.contract.clusters.spec import BudgetSpec
from trainer.contract.reasons import ReasonCode

WARNED = "budget.warned"
DEFAULT_SHARES: tuple[float, ...] = BudgetSpec.model_fields["warn_at"].default
"""At which a project's budget is warned of, where the run has none of its own."""


def runs_to_watch(session: Session, *, now: datetime) -> Sequence[str]:
    """Return ids of the runs that spend and have used enough of a budget to be warned of it."""
    shares = budgets.largest_shares(session, now=now)
    if not shares:
        return ()
    query = select(Run.id, Run.spec["budget"]).where(Run.id.in_(list(shares))).order_by(Run.id)
    return [
        run_id
        for run_id, given in session.execute(query)
        if shares[run_id] >= min(1.0, *_shares(given))
    ]


def watch(session: Session, run: Run, *, now: datetime) -> bool:
    """Warn of, or pause, a locked run by its budgets; True when it was paused now."""
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
    message = f"The budget is used up ({nearest.told()}): extend it, then resume."
    control.rest(session, run, (ReasonCode.BUDGET_EXHAUSTED, message), actor="service", now=now)
    return True


def _warn(session: Session, run: Run, allowance: Allowance, *, now: datetime) -> None:
    """Tell each share once per budget; one that was extended or replaced is another budget."""
    told = _told(session, run, allowance)
    due = [share for share in shares_of(run) if told < share <= allowance.share]
    if not due:
        return
    data = {
        "owner": allowance.owner,
        "budget": allowance.facts(),
        "share": due[-1],
        "used": allowance.share,
        "message": f"{due[-1]:.0%} of the budget is used ({allowance.told()}).",
    }
    draft = Draft(type=WARNED, at=now, attempt=run.attempt or None, data=data)
    append(session, run, [draft])


def _told(session: Session, run: Run, allowance: Allowance) -> float:
    """Return the largest share of this very budget that was told; 0.0 for none."""
    query = select(RunEvent.data).where(RunEvent.run_id == run.id, RunEvent.type == WARNED)
    which = (allowance.owner, allowance.facts())
    told = [
        data["share"]
        for data in session.scalars(query)
        if (data["owner"], data.get("budget")) == which
    ]
    return max(told, default=0.0)


def shares_of(run: Run) -> Sequence[float]:
    """Return the shares of a budget at which the run is warned."""
    return _shares(run.spec.get("budget"))


def _shares(given: Mapping[str, Any] | None) -> Sequence[float]:
    return tuple(given["warn_at"]) if given else DEFAULT_SHARES
