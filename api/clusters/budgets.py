"""Budgets: what a run and a project may use, how much is used, and what follows.

A run's own budget is in its spec (`budget`) plus what was granted later; a project's is for all
its runs together. Whichever is nearer to its end counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, or_, select, true
from sqlalchemy.orm import Session

from api.clusters import cost
from api.clusters.cost import Spent
from api.clusters.errors import NoBudget
from api.clusters.store import MAX_CLUSTERS
from api.ids import new_id
from api.runs.journal import Draft, append
from api.tables import BudgetExtension, Cluster, ProjectLimits, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much of one budget is used; a limit that is null does not bound."""

    owner: str
    """`run` or `project`."""
    usd: float | None
    hours: float | None
    spent: Spent

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
    return cost.total(_parts(session, Run.id == run_id, now=now, since=None))


def of_project(session: Session, project_id: str, *, now: datetime) -> Allowance | None:
    """Return the project's budget and what its runs have used of it; null without one."""
    budget = session.get(ProjectLimits, project_id)
    if budget is None or (budget.usd is None and budget.hours is None):
        return None
    parts = _parts(session, Run.project_id == project_id, now=now, since=budget.since)
    return Allowance(owner="project", usd=budget.usd, hours=budget.hours, spent=cost.total(parts))


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


def _of_run(session: Session, run: Run, *, now: datetime) -> Allowance | None:
    given = run.spec.get("budget") or {}
    usd, hours = given.get("usd"), given.get("hours")
    if usd is None and hours is None:
        return None
    query = select(BudgetExtension).where(BudgetExtension.run_id == run.id)
    more = session.scalars(query).all()
    return Allowance(
        owner="run",
        usd=None if usd is None else usd + sum(each.usd for each in more),
        hours=None if hours is None else hours + sum(each.hours for each in more),
        spent=spent_by_run(session, run.id, now=now),
    )


def _parts(
    session: Session, whose: ColumnElement[bool], *, now: datetime, since: datetime | None
) -> Iterator[Spent]:
    recent = or_(Cluster.gone_at.is_(None), Cluster.gone_at > since) if since else true()
    clusters = select(Cluster).join(Run, Run.id == Cluster.run_id).where(whose, recent)
    for cluster in session.scalars(clusters):
        yield cost.of_cluster(cluster, now=now, since=since)


def _share(used: float, limit: float) -> float:
    """Of nothing all is used."""
    return used / limit if limit > 0 else 1.0
