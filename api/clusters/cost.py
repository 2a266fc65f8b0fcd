"""What runs have cost: one computation for API, CLI, dashboard and budgets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from api.tables import Cluster

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Money and time; `hours` are those in which clusters were paid, together."""

    usd: float = 0.0
    hours: float = 0.0
    is_complete: bool = True
    """False when a cluster's price is not known: `usd` is then a lower bound."""

    def __add__(self, other: Spent) -> Spent:
        """Return both together."""
        return Spent(
            usd=self.usd + other.usd,
            hours=self.hours + other.hours,
            is_complete=self.is_complete and other.is_complete,
        )


def of_cluster(cluster: Cluster, *, now: datetime, since: datetime | None = None) -> Spent:
    """Return what a cluster has cost from `since` until it was gone, or until now.

    Machines are paid from the moment they are had, before anything is installed on them; a
    cluster that got none cost nothing.
    """
    if cluster.paid_from is None:
        return Spent()
    hours = _hours(cluster.paid_from, cluster.gone_at or now, since)
    if cluster.hourly_usd is None:
        return Spent(hours=hours, is_complete=hours == 0.0)
    return Spent(usd=hours * cluster.hourly_usd, hours=hours)


def total(parts: Iterable[Spent]) -> Spent:
    """Return the sum."""
    return sum(parts, Spent())


def _hours(start: datetime, end: datetime, since: datetime | None) -> float:
    begin = start if since is None else max(start, since)
    return max(0.0, (end - begin).total_seconds()) / SECONDS_PER_HOUR
