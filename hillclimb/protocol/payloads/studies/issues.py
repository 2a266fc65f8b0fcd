"""Payloads of the ledger of issues."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class EvalPlacePayload(Payload):
    """The evaluations of a step of a run."""

    run_id: str
    step: int


class SymptomRate(Payload):
    """The share of rollouts that show a symptom, averaged over tasks; shares are in [0, 1]."""

    value: float
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    bound_if_none: float
    """The share if no rollout of which it is not known showed it."""
    bound_if_all: float
    """The share if all of them did."""
    num_tasks: int
    """Tasks that entered the share."""
    num_rollouts: int
    """Rollouts that were started."""
    coverage: float
    """Share of them of which it is known whether they show it."""


class IssueMeasure(Payload):
    """The figures of an issue, computed from stored outcomes when it is read."""

    rule: str
    """Version of the rule of the status."""
    detectors: int | None
    """Version of the detectors; null for a symptom that needs none, and without a search."""
    decoding: str | None
    before: SymptomRate | None
    """Null where no rollout is known."""
    after: SymptomRate | None
    delta: float | None
    """Over the shared tasks of a paired test, else the difference of both shares."""
    num_paired: int
    """Tasks that both evaluations have."""
    is_paired: bool | None
    """The test: paired over the shared tasks, or Fisher's on first rollouts; null: no test."""
    p_value: float | None
    """Two-sided and exact, for this issue alone."""
    status: str
    """`fixed`, `improved`, `unchanged`, `worse` or `needs_analysis`."""
    why: str | None
    """Why it needs analysis."""


class IssuePayload(Payload):
    """An issue of the project."""

    object: Literal["issue"] = "issue"
    id: str
    number: int
    """From 1 in the project."""
    title: str
    severity: str
    """`critical`, `high`, `medium` or `low`."""
    description: str
    impact: str
    symptom: str
    """A failure pattern, or a symptom of outcomes such as `failure`."""
    definition: str
    """A rollout shows the symptom when ..."""
    env_key: str | None
    """Null: all environments."""
    decoding: str | None
    """Null: the first that both evaluations have."""
    baseline: EvalPlacePayload
    after: EvalPlacePayload | None
    state: Literal["open", "closed"]
    created_at: datetime
    created_by: str
    updated_at: datetime
    closed_at: datetime | None
    closed_by: str | None
    resolution: str | None
    measured: IssueMeasure


class IssueList(Payload):
    """One page of issues, newest first."""

    object: Literal["list"] = "list"
    data: list[IssuePayload]
    has_more: bool


class IssueLedger(Payload):
    """The ledger as Markdown."""

    object: Literal["issue_ledger"] = "issue_ledger"
    num_issues: int
    markdown: str
    """Two tables: descriptions by severity, and shares before and after with the status."""
