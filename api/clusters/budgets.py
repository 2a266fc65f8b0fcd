"""Budgets of runs and projects in money and cluster hours, and the amounts spent.

A run's own budget is in its spec (`budget`), plus later extensions; a project's is for all its runs
together. The one with the larger used share counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, exists, or_, select, true
from sqlalchemy.orm import Session

from api.clusters import cost
from api.clusters.cost import Spent
from api.clusters.errors import NoBudget
from api.clusters.store import MAX_CLUSTERS, ClusterState
from api.runs.errors import InvalidTransition
from api.runs.journal import Draft, append
from api.runs.status import TERMINAL, RunStatus
from api.tables import BudgetExtension, Cluster, DeletedRun, ProjectLimits, Run, RunEvent
from api.tables.ids import new_id
from hillclimb.spec.backend.skypilot import BudgetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """One budget and the amount spent of it; a limit that is null does not bound."""

    owner: str
    """`run` or `project`."""
    usd: float | None
    hours: float | None
    spent: Spent
    since: datetime | None = None
    """Spending before this does not count; null: all does."""

    @property
    def share(self) -> float:
        """The larger share used, of money or time: 1.0 is all of it."""
        shares = [0.0]
        if self.usd is not None:
            shares.append(_share(self.spent.usd, self.usd))
        if self.hours is not None:
            shares.append(_share(self.spent.hours, self.hours))
        return max(shares)

    @property
    def is_used_up(self) -> bool:
        """True when it allows no more spending."""
        return self.share >= 1.0

    def facts(self) -> dict[str, object]:
        """Return the identity of the budget as JSON values."""
        since = None if self.since is None else self.since.isoformat()
        return {"usd": self.usd, "hours": self.hours, "since": since}

    def summary(self) -> str:
        """Return the amounts used and the limits as text."""
        parts = []
        if self.usd is not None:
            bound = "" if self.spent.is_complete else "at least "
            parts.append(f"{bound}${self.spent.usd:.2f} of ${self.usd:.2f}")
        if self.hours is not None:
            parts.append(f"{self.spent.hours:.2f} h of {self.hours:.2f} h")
        return f"{self.owner}: " + " and ".join(parts)


class DeletedCluster(BaseModel):
    """The bill of a cluster of a deleted run (an item of `api.tables.DeletedRun.billed`)."""

    model_config = ConfigDict(frozen=True)

    billed_from: datetime | None
    terminated_at: datetime | None
    hourly_usd: float | None


def allowances(session: Session, run: Run, *, now: datetime) -> tuple[Allowance, ...]:
    """Return the budgets that bound the run: its own, its project's, both or none."""
    both = (_of_run(session, run, now=now), of_project(session, run.project_id, now=now))
    return tuple(each for each in both if each is not None)


def spent_by_run(session: Session, run_id: str, *, now: datetime) -> Spent:
    """Return the amount that a run has spent over all its attempts."""
    parts = _parts(session, Run.id == run_id, now=now, since=None)
    return cost.total(part for _, part in parts)


def of_project(session: Session, project_id: str, *, now: datetime) -> Allowance | None:
    """Return the project's budget and the amount its runs have spent; null without one."""
    budget = session.get(ProjectLimits, project_id)
    if budget is None or (budget.usd is None and budget.hours is None):
        return None
    parts = _parts(session, Run.project_id == project_id, now=now, since=budget.since)
    deleted = _of_deleted(session, project_id, now=now, since=budget.since)
    spent = cost.total(part for _, part in parts) + cost.total(deleted)
    return Allowance(
        owner="project", usd=budget.usd, hours=budget.hours, spent=spent, since=budget.since
    )


def remaining_of(session: Session, run: Run, *, now: datetime) -> BudgetSpec | None:
    """Return the remaining budget of a run, for one that resumes from it; null without one.

    Budgets of runs that resumed from it before are reserved while these runs are active; what they
    spent stays spent. Raises InvalidTransition when nothing remains.
    """
    allowance = _of_run(session, run, now=now)
    if allowance is None:
        return None
    used = allowance.spent + _used_by_successors(session, run, now=now)
    remaining = {
        "usd": None if allowance.usd is None else allowance.usd - used.usd,
        "hours": None if allowance.hours is None else allowance.hours - used.hours,
    }
    if any(each is not None and each <= 0.0 for each in remaining.values()):
        raise InvalidTransition(
            f"Nothing remains of the budget of run {run.id}: the runs that were resumed from it"
            " have it all. Resume one of those, or extend this run's budget"
            f" (POST /v1/runs/{run.id}/budget, hillclimb budget)."
        )
    return BudgetSpec.model_validate(run.spec["budget"] | remaining)


def limits_of(session: Session, project_id: str) -> ProjectLimits:
    """Return a project's limits; the defaults, as a transient row, when none are set."""
    limits = session.get(ProjectLimits, project_id)
    return limits or ProjectLimits(project_id=project_id, max_clusters=MAX_CLUSTERS)


def set_limits(session: Session, limits: ProjectLimits) -> ProjectLimits:
    """Replace a project's limits."""
    return session.merge(limits)


def extend(
    session: Session, run: Run, *, usd: float, hours: float, granted_by: str, now: datetime
) -> None:
    """Extend the budget of a run beyond its spec.

    Raises NoBudget when its spec does not limit the extended unit.
    """
    budget = run.spec.get("budget") or {}
    unlimited = [
        name for name, more in (("usd", usd), ("hours", hours)) if more and budget.get(name) is None
    ]
    if not budget or unlimited:
        missing = " and ".join(f"budget.{name}" for name in unlimited) or "budget"
        raise NoBudget(
            f"The spec of run {run.id} sets no {missing}: there is nothing to extend. The budget of"
            " all runs of a project together is set with `hillclimb limits` (PUT /v1/limits)."
        )
    session.add(
        BudgetExtension(
            id=new_id("bex"),
            run_id=run.id,
            usd=usd,
            hours=hours,
            granted_by=granted_by,
            created_at=now,
        )
    )
    data = {"usd": usd, "hours": hours}
    draft = Draft(type="budget.extended", at=now, actor=granted_by, data=data)
    append(session, run, [draft])


def largest_shares(session: Session, *, now: datetime) -> dict[str, float]:
    """Return the largest used share of each run with a cluster and a budget, by run id.

    The same as `allowances`, for all runs in a few queries.
    """
    spends = (
        exists()
        .where(Cluster.run_id == Run.id, Cluster.billed_from.is_not(None))
        .where(Cluster.state != ClusterState.TERMINATED.value)
    )
    rows = session.execute(select(Run.id, Run.project_id, Run.spec["budget"]).where(spends)).all()
    if not rows:
        return {}
    of_projects = {
        project_id: of_project(session, project_id, now=now)
        for project_id in {row.project_id for row in rows}
    }
    bounded = {run_id: budget for run_id, _, budget in rows if _is_bound(budget)}
    of_runs = _of_runs(session, bounded, now=now)
    largest: dict[str, float] = {}
    for run_id, project_id, _ in rows:
        both = (of_runs.get(run_id), of_projects[project_id])
        shares = [each.share for each in both if each is not None]
        if shares:
            largest[run_id] = max(shares)
    return largest


def _of_run(session: Session, run: Run, *, now: datetime) -> Allowance | None:
    budget = run.spec.get("budget")
    if budget is None or not _is_bound(budget):
        return None
    return _of_runs(session, {run.id: budget}, now=now)[run.id]


def _used_by_successors(session: Session, run: Run, *, now: datetime) -> Spent:
    """Return the part of a run's budget that runs resumed from it have reserved or spent."""
    source = Run.spec["lineage"]["resumed_from"]["run_id"].as_string()
    query = (
        select(Run)
        .join(RunEvent, (RunEvent.run_id == Run.id) & (RunEvent.seq == 1))
        .where(Run.project_id == run.project_id, source == run.id)
        .where(RunEvent.data["is_resumed"].as_boolean())
    )
    return cost.total(_reserved_or_spent(session, each, now=now) for each in session.scalars(query))


def _reserved_or_spent(session: Session, run: Run, *, now: datetime) -> Spent:
    """Return the whole budget of an active run; of an ended one, the spending it caused."""
    budget = run.spec["budget"] or {}
    reserved = Spent(usd=budget.get("usd") or 0.0, hours=budget.get("hours") or 0.0)
    if RunStatus(run.status) not in TERMINAL:
        return reserved
    used = spent_by_run(session, run.id, now=now) + _used_by_successors(session, run, now=now)
    return Spent(usd=min(used.usd, reserved.usd), hours=min(used.hours, reserved.hours))


def _is_bound(budget: Mapping[str, Any] | None) -> bool:
    limits = budget or {}
    return limits.get("usd") is not None or limits.get("hours") is not None


def _of_runs(
    session: Session, budgets: Mapping[str, Mapping[str, Any]], *, now: datetime
) -> dict[str, Allowance]:
    """Return the allowances of runs whose specs have these budgets."""
    if not budgets:
        return {}
    usd: defaultdict[str, float] = defaultdict(float)
    hours: defaultdict[str, float] = defaultdict(float)
    query = select(BudgetExtension).where(BudgetExtension.run_id.in_(list(budgets)))
    for each in session.scalars(query):
        usd[each.run_id] += each.usd
        hours[each.run_id] += each.hours
    spent = dict.fromkeys(budgets, Spent())
    for run_id, part in _parts(session, Run.id.in_(list(budgets)), now=now, since=None):
        spent[run_id] += part
    return {
        run_id: Allowance(
            owner="run",
            usd=None if budget.get("usd") is None else budget["usd"] + usd[run_id],
            hours=None if budget.get("hours") is None else budget["hours"] + hours[run_id],
            spent=spent[run_id],
        )
        for run_id, budget in budgets.items()
    }


def _parts(
    session: Session, condition: ColumnElement[bool], *, now: datetime, since: datetime | None
) -> Iterator[tuple[str, Spent]]:
    """Yield the cost of each cluster, with its run's id."""
    recent = (
        or_(Cluster.terminated_at.is_(None), Cluster.terminated_at > since) if since else true()
    )
    columns = (Cluster.run_id, Cluster.billed_from, Cluster.terminated_at, Cluster.hourly_usd)
    clusters = select(*columns).join(Run, Run.id == Cluster.run_id).where(condition, recent)
    for cluster in session.execute(clusters):
        yield cluster.run_id, cost.of_cluster(cluster, now=now, since=since)


def _of_deleted(
    session: Session, project_id: str, *, now: datetime, since: datetime
) -> Iterator[Spent]:
    """Yield the cost of each cluster of the project's deleted runs."""
    query = select(DeletedRun.billed).where(
        DeletedRun.project_id == project_id, DeletedRun.created_at > since
    )
    for clusters in session.scalars(query):
        for facts in clusters:
            yield cost.of_cluster(DeletedCluster.model_validate(facts), now=now, since=since)


def _share(used: float, limit: float) -> float:
    """Return the used share; 1.0 of a budget of zero."""
    return used / limit if limit > 0 else 1.0
