"""Payloads of costs, budgets and cloud exclusions."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class SpentPayload(Payload):
    """Money and hours used so far."""

    usd: float
    hours: float
    """Billed hours of all clusters together."""
    is_complete: bool
    """False if a price is not known: `usd` is then a lower bound."""


class OutlookPayload(Payload):
    """Cost of a run: so far, per hour, and forecast."""

    spent: SpentPayload
    hourly_usd: float | None
    """Price of all clusters billed now; 0 without any, null while a price is not known."""
    eta_s: float | None
    """Seconds to the last step, estimated by recent steps."""
    left_usd: float | None
    """Cost of these seconds at the present price, or at the last known one."""
    whole_usd: float | None
    """Estimated cost at the end of the run."""


class AllowancePayload(Payload):
    """One budget."""

    owner: Literal["run", "project"]
    usd: float | None
    hours: float | None
    spent: SpentPayload
    share: float
    """The larger of the used shares of money and time; at 1 the run pauses."""
    is_used_up: bool
    """True if `share` is 1 or more: a paused run can be resumed once the budget is extended."""


class CloudExclusionPayload(Payload):
    """Machines that failed recently and are requested last."""

    id: str
    infra: str
    sku: str | None
    reason: str
    created_at: datetime
    until: datetime


class CloudExclusionList(Payload):
    """The cloud exclusions in force."""

    object: Literal["list"] = "list"
    data: list[CloudExclusionPayload]


class BudgetPayload(Payload):
    """The budgets of a run and of its project."""

    data: list[AllowancePayload]
    spent: SpentPayload
    """The cost of this run alone."""


class LimitsPayload(Payload):
    """Limits of all runs of a project together; null: no limit."""

    usd: float | None = None
    hours: float | None = None
    max_clusters: int
    """Clusters at once."""
    since: datetime | None = None
    """Time from which spending counts."""
