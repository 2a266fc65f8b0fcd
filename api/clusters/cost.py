"""Costs of clusters and runs: one computation for API, CLI, dashboard and budgets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from api.tables import Cluster

SECONDS_PER_HOUR = 3600.0


class BilledCluster(Protocol):
    """The inputs of a cluster's cost: a `Cluster`, or these of its columns."""

    @property
    def billed_from(self) -> datetime | None:
        """The start of billing."""
        ...

    @property
    def terminated_at(self) -> datetime | None:
        """The end of billing."""
        ...

    @property
    def hourly_usd(self) -> float | None:
        """Price of all nodes together; null while unknown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Money and billed cluster hours."""

    usd: float = 0.0
    hours: float = 0.0
    is_complete: bool = True
    """False when a cluster's price is not known: `usd` is then a lower bound."""

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(
            usd=self.usd + other.usd,
            hours=self.hours + other.hours,
            is_complete=self.is_complete and other.is_complete,
        )


def of_cluster(cluster: BilledCluster, *, now: datetime, since: datetime | None = None) -> Spent:
    """Return the cost of a cluster from `since` until its termination, or until now.

    Billing starts when its machines are allocated, before they are set up; a cluster without
    machines cost nothing.
    """
    if cluster.billed_from is None:
        return Spent()
    hours = _hours(cluster.billed_from, cluster.terminated_at or now, since)
    if cluster.hourly_usd is None:
        return Spent(hours=hours, is_complete=hours == 0.0)
    return Spent(usd=hours * cluster.hourly_usd, hours=hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostForecast:
    """The costs of a run: spent so far, per hour now, and expected at its end."""

    spent: Spent
    hourly_usd: float | None
    """Price of the machines billed now; 0 without any, null while a price is unknown."""
    eta_s: float | None
    """Seconds to the run's last step, by the remaining steps and the time of recent ones."""
    left_usd: float | None
    """Cost of these seconds at the current rate, or at the last known one."""

    @property
    def whole_usd(self) -> float | None:
        """Expected cost of the whole run."""
        return None if self.left_usd is None else self.spent.usd + self.left_usd


def forecast(clusters: Sequence[Cluster], *, eta_s: float | None, now: datetime) -> CostForecast:
    """Return a run's costs by its clusters, oldest first; `eta_s` is its trainer's newest."""
    billed = [c for c in clusters if c.billed_from is not None and c.terminated_at is None]
    prices = [cluster.hourly_usd for cluster in billed]
    known = [price for price in prices if price is not None]
    last = next((c.hourly_usd for c in reversed(clusters) if c.hourly_usd is not None), None)
    rate = sum(known) if billed and len(known) == len(prices) else last
    return CostForecast(
        spent=total(of_cluster(cluster, now=now) for cluster in clusters),
        hourly_usd=sum(known) if len(known) == len(prices) else None,
        eta_s=eta_s,
        left_usd=None if eta_s is None or rate is None else eta_s / SECONDS_PER_HOUR * rate,
    )


def total(parts: Iterable[Spent]) -> Spent:
    """Return the sum."""
    return sum(parts, Spent())


def _hours(start: datetime, end: datetime, since: datetime | None) -> float:
    begin = start if since is None else max(start, since)
    return max(0.0, (end - begin).total_seconds()) / SECONDS_PER_HOUR
