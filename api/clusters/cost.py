"""What runs have cost: one computation for API, CLI, dashboard and budgets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from api.tables import Cluster

SECONDS_PER_HOUR = 3600.0


class Rented(Protocol):
    """What a cluster's cost depends on: a `Cluster`, or these of its columns."""

    @property
    def paid_from(self) -> datetime | None:
        """Since when it is paid."""
        ...

    @property
    def gone_at(self) -> datetime | None:
        """Until when."""
        ...

    @property
    def hourly_usd(self) -> float | None:
        """Of all nodes together; null while nobody knows."""
        ...


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


def of_cluster(cluster: Rented, *, now: datetime, since: datetime | None = None) -> Spent:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a run has cost, costs now, and will have cost at its end."""

    spent: Spent
    hourly_usd: float | None
    """Of the machines that are paid for now; 0 without any, null while a price is not known."""
    eta_s: float | None
    """Seconds to the run's last step, by the steps left and the time of recent ones."""
    left_usd: float | None
    """What these seconds cost at the present rate, or at the last known one."""

    @property
    def whole_usd(self) -> float | None:
        """At the end, if all goes on as it does."""
        return None if self.left_usd is None else self.spent.usd + self.left_usd


def outlook(clusters: Sequence[Cluster], *, eta_s: float | None, now: datetime) -> Outlook:
    """Return a run's costs by its clusters, oldest first; `eta_s` is what its trainer last said."""
    paid = [each for each in clusters if each.paid_from is not None and each.gone_at is None]
    prices = [each.hourly_usd for each in paid]
    known = [price for price in prices if price is not None]
    last = next((c.hourly_usd for c in reversed(clusters) if c.hourly_usd is not None), None)
    rate = sum(known) if paid and len(known) == len(prices) else last
    return Outlook(
        spent=total(of_cluster(each, now=now) for each in clusters),
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
