"""What is said of money, in every answer the same way."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict


class CostsPayload(BaseModel):
    """Base of these answers: read from the domain's objects."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)


class SpentPayload(CostsPayload):
    """What was used so far."""

    usd: float
    hours: float
    """Hours in which clusters were paid for, together."""
    is_complete: bool
    """False where a price is not known: `usd` is then a lower bound."""


class OutlookPayload(CostsPayload):
    """What a run has cost, costs now, and will have cost."""

    spent: SpentPayload
    hourly_usd: float | None
    """Of the machines that are paid for now; 0 without any, null while a price is not known."""
    eta_s: float | None
    """Seconds to the last step, by the steps left and the time of recent ones."""
    left_usd: float | None
    """What these seconds cost at the present rate, or at the last known one."""
    whole_usd: float | None
    """At the end, if all goes on as it does."""


class AllowancePayload(CostsPayload):
    """One budget."""

    owner: Literal["run", "project"]
    usd: float | None
    hours: float | None
    spent: SpentPayload
    share: float
    """The larger share used, of money or time; at 1 the run pauses."""
    is_used_up: bool
    """True from 1 on: a paused run cannot be resumed before it is extended."""


class CloudExclusionPayload(CostsPayload):
    """Machines that failed of late and are asked for last."""

    id: str
    infra: str
    sku: str | None
    reason: str
    created_at: datetime
    until: datetime
