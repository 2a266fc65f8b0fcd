"""Payloads of campaigns."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.results.evals import RatePayload
from hillclimb.protocol.payloads.results.reports import ComparisonPayload


class CellState(StrEnum):
    """The state of a campaign's cell."""

    ACCEPTED = "accepted"
    """The run waits for a machine."""
    RUNNING = "running"
    RETRYABLE = "retryable"
    """The run ended without a result, and another try may succeed."""
    BLOCKED = "blocked"
    """The service refused the run, or it failed by its own settings, or it is paused."""
    DONE = "done"


class CellPayload(Payload):
    """One evaluation of a campaign."""

    number: int
    model: str
    dataset: str | None
    """Null: the tasks of the campaign's `base`."""
    repeat: int
    state: CellState
    why: str | None
    """The reason of a blocked or retryable cell, in words."""
    run_id: str | None
    num_launches: int
    """Runs that were launched for it so far, by any campaign."""
    num_campaigns: int
    """Campaigns that share it."""


class CampaignSummary(Payload):
    """A campaign in a list."""

    object: Literal["campaign"] = "campaign"
    id: str
    name: str
    created_at: datetime
    created_by: str
    num_cells: int
    states: dict[CellState, int]
    """Number of cells in each state."""


class CampaignPayload(CampaignSummary):
    """A campaign in full."""

    spec: dict[str, Any]
    cells: list[CellPayload]


class CampaignList(Payload):
    """One page of campaigns, newest first."""

    object: Literal["list"] = "list"
    data: list[CampaignSummary]
    has_more: bool


class CampaignResult(Payload):
    """A model on a dataset under a decoding, its repeats pooled task by task."""

    model: str
    dataset: str | None
    decoding: str
    temperature: float
    num_repeats: int
    """Repeats planned under this decoding."""
    num_done: int
    """Those of them whose figures are in."""
    all: RatePayload
    envs: dict[str, RatePayload]
    difficulties: dict[str, RatePayload]
    """By difficulty, `1` to `3`; `unknown` for tasks without one."""
    modalities: dict[str, RatePayload]
    against_baseline: ComparisonPayload | None
    """Against the first model on the same tasks; null for that model, and without its figures."""


class CampaignTable(Payload):
    """The results of a campaign, in the order of its models, datasets and decodings."""

    object: Literal["campaign_table"] = "campaign_table"
    campaign_id: str
    name: str
    baseline: str
    """Name of the model that the others are compared with."""
    k: int
    """The figures of comparisons are pass@k."""
    rule: str
    """Version of the rule of the verdicts."""
    is_complete: bool
    data: list[CampaignResult]
