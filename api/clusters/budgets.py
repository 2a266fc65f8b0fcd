"""Budgets: what a run and a project may use, how much is used, and what follows.

A run's own budget is in its spec (`budget`) plus what was granted later; a project's is for all
its runs together. Whichever is nearer to its end counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, exists, or_, select, true
from sqlalchemy.orm import Session

from api.clusters import cost
from api.clusters.cost import Spent
from api.clusters.errors import NoBudget
from api.clusters.store import MAX_CLUSTERS, ClusterState
from api.ids import new_id
from api.runs.errors import InvalidTransition
from api.runs.journal import Draft, append
from api.runs.status import TERMINAL, RunStatus
from api.tables import BudgetExtension, Cluster, ProjectLimits, Run, RunEvent
from trainer.contract.clusters.spec import BudgetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much of one budget is used; a limit that is null does not bound."""

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
        """Whether a run may not go on with it."""
        return self.share >= 1.0

    def facts(self) -> dict[str, object]:
        """Return what makes it this budget and not another, as JSON values."""
        since = None if self.since is None else self.since.isoformat()
        return {"usd": self.usd, "hours": self.hours, "since": since}

    def told(self) -> str:
        """Say how much is used of what."""
        parts = []
        if self.usd is not None:
            bound = "" if self.spent.is_complete else "at least "
            parts.append(f"{bound}${self.spent.usd:.2f} of ${self.usd:.2f}")
        if self.hours is not None:
            parts.append(f"{self.spent.hours:.2f} h of {self.hours:.2f} h")
        return f"{self.owner}: " + " and ".join(parts)


def allowances(session: Session, run: Run, *, now: datetime) -> tuple[Allowance, ...]:
    """Return the budgets that bound the run; none when nobody set one."""
    found = (_of_run(session, run, now=now), of_project(session, run.project_id, now=now))
    return tuple(each for each in found if each is not None)


def spent_by_run(session: Session, run_id: str, *, now: datetime) -> Spent:
    """Return what a run has used over all its attempts."""
    parts = _parts(session, Run.id == run_id, now=now, since=None)
    return cost.total(part for _, part in parts)


def of_project(session: Session, project_id: str, *, now: datetime) -> Allowance | None:
    """Return the project's budget and what its runs have used of it; null without one."""
    budget = session.get(ProjectLimits, project_id)
    if budget is None or (budget.usd is None and budget.hours is None):
        return None
    parts = _parts(session, Run.project_id == project_id, now=now, since=budget.since)
    spent = cost.total(part for _, part in parts)
    return Allowance(
        owner="project", usd=budget.usd, hours=budget.hours, spent=spent, since=budget.since
    )


def left_of(session: Session, run: Run, *, now: datetime) -> BudgetSpec | None:
    """Return what is left of a run's own budget, for a run that goes on from it; null without one.

    What runs were given that went on from it before is theirs while they live, and what they spent
    of it stays spent. Raises InvalidTransition where nothing is left.
    """
    allowance = _of_run(session, run, now=now)
    if allowance is None:
        return None
    used = allowance.spent + _passed_on(session, run, now=now)
    left = {
        "usd": None if allowance.usd is None else allowance.usd - used.usd,
        "hours": None if allowance.hours is None else allowance.hours - used.hours,
    }
    if any(each is not None and each <= 0.0 for each in left.values()):
        raise InvalidTransition(
            f"Nothing is left of the budget of run {run.id}: what it had not spent went to the runs"
            " that were resumed from it. Resume one of those, or extend this run's budget"
            f" (POST /v1/runs/{run.id}/budget, hillclimb budget)."
        )
    return BudgetSpec.model_validate(run.spec["budget"] | left)


def limits_of(session: Session, project_id: str) -> ProjectLimits:
    """Return a project's limits; the defaults, in no session, where nobody set any."""
    found = session.get(ProjectLimits, project_id)
    return found or ProjectLimits(project_id=project_id, max_clusters=MAX_CLUSTERS)


def set_limits(session: Session, limits: ProjectLimits) -> ProjectLimits:
    """Replace a project's limits."""
    return session.merge(limits)


def extend(
    session: Session, run: Run, *, usd: float, hours: float, granted_by: str, now: datetime
) -> None:
    """Give a run more than its spec does.

    Raises NoBudget where its spec does not limit what is extended.
    """
    given = run.spec.get("budget") or {}
    unlimited = [
        name for name, more in (("usd", usd), ("hours", hours)) if more and given.get(name) is None
    ]
    if not given or unlimited:
        lacks = " and ".join(f"budget.{name}" for name in unlimited) or "budget"
        raise NoBudget(
            f"The spec of run {run.id} sets no {lacks}: there is nothing to extend. What all runs"
            " of a project may use together is set with `hillclimb limits` (PUT /v1/limits)."
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
    """Return the larger share used of each run that has a cluster and a budget, by run.

    The same as `allowances`, for all runs at once: a few queries, however many there are.
    """
    spends = (
        exists()
        .where(Cluster.run_id == Run.id, Cluster.paid_from.is_not(None))
        .where(Cluster.state != ClusterState.GONE.value)
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
    found: dict[str, float] = {}
    for run_id, project_id, _ in rows:
        both = (of_runs.get(run_id), of_projects[project_id])
        shares = [each.share for each in both if each is not None]
        if shares:
            found[run_id] = max(shares)
    return found


def _of_run(session: Session, run: Run, *, now: datetime) -> Allowance | None:
    budget = run.spec.get("budget")
    if budget is None or not _is_bound(budget):
        return None
    return _of_runs(session, {run.id: budget}, now=now)[run.id]


def _passed_on(session: Session, run: Run, *, now: datetime) -> Spent:
    """Return how much of a run's budget the runs have that a resume made of it."""
    source = Run.spec["lineage"]["resumed_from"]["run_id"].as_string()
    query = (
        select(Run)
        .join(RunEvent, (RunEvent.run_id == Run.id) & (RunEvent.seq == 1))
        .where(Run.project_id == run.project_id, source == run.id)
        .where(RunEvent.data["is_resumed"].as_boolean())
    )
    return cost.total(_taken(session, each, now=now) for each in session.scalars(query))


def _taken(session: Session, run: Run, *, now: datetime) -> Spent:
    """Return all that a run was given while it lives, then what it and those after it spent."""
    budget = run.spec["budget"] or {}
    given = Spent(usd=budget.get("usd") or 0.0, hours=budget.get("hours") or 0.0)
    if RunStatus(run.status) not in TERMINAL:
        return given
    used = spent_by_run(session, run.id, now=now) + _passed_on(session, run, now=now)
    return Spent(usd=min(used.usd, given.usd), hours=min(used.hours, given.hours))


def _is_bound(budget: Mapping[str, Any] | None) -> bool:
    given = budget or {}
    return given.get("usd") is not None or given.get("hours") is not None


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
            usd=None if given.get("usd") is None else given["usd"] + usd[run_id],
            hours=None if given.get("hours") is None else given["hours"] + hours[run_id],
            spent=spent[run_id],
        )
        for run_id, given in budgets.items()
    }


def _parts(
    session: Session, whose: ColumnElement[bool], *, now: datetime, since: datetime | None
) -> Iterator[tuple[str, Spent]]:
    """Yield what each cluster has cost, with its run's id."""
    recent = or_(Cluster.gone_at.is_(None), Cluster.gone_at > since) if since else true()
    columns = (Cluster.run_id, Cluster.paid_from, Cluster.gone_at, Cluster.hourly_usd)
    clusters = select(*columns).join(Run, Run.id == Cluster.run_id).where(whose, recent)
    for cluster in session.execute(clusters):
        yield cluster.run_id, cost.of_cluster(cluster, now=now, since=since)


def _share(used: float, limit: float) -> float:
    """Of nothing all is used."""
    return used / limit if limit > 0 else 1.0
