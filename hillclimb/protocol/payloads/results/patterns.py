"""Payloads of failure patterns."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.results.reports import Span


class PatternPayload(Payload):
    """One failure pattern before and after; rates are shares of rollouts, averaged over tasks."""

    name: str
    severity: str
    """`critical`, `high`, `medium` or `low`."""
    definition: str
    num_before: int
    """Rollouts that show it."""
    num_after: int
    before: float | None
    """Null where no rollout was searched."""
    before_interval: Span
    """95 % interval."""
    after: float | None
    after_interval: Span
    delta: float | None
    """Over tasks that both evaluations have."""
    p_value: float | None
    """Two-sided and exact, for this pattern alone; null for fewer than 10 tasks."""
    status: str
    """`fixed`, `improved`, `unchanged`, `worse`, `needs_analysis`, `absent` or `unknown`."""
    exemplars: list[str]
    """Rollouts of the later evaluation that show it, at most three."""


class PatternReport(Payload):
    """The failure patterns of two evaluations of a run, most frequent in the later one first."""

    object: Literal["patterns"] = "patterns"
    run_id: str
    before_step: int
    after_step: int
    decoding: str
    environment: str | None
    """Null: all."""
    version: int | None
    """Version of the detectors that searched these rollouts; null: none did."""
    rule: str
    """Version of the rule of the statuses."""
    num_searched_before: int
    num_searched_after: int
    data: list[PatternPayload]


class PatternSearchPayload(Payload):
    """Stored rollouts of a run that a version of the detectors has searched again."""

    object: Literal["pattern_search"] = "pattern_search"
    run_id: str
    version: int
    """Version of the detectors."""
    searched_at: datetime | None
    """Null where nothing had to be searched."""
    num_searched: int
    """Rollouts whose patterns by this version stand beside those of their trainer."""
    num_changed: int
    """Those of them that the trainer's search found otherwise, or did not search."""


class PatternSearchResult(PatternSearchPayload):
    """The result of a request to search again."""

    num_by_trainer: int
    """Rollouts of the request that their trainer had searched by this version."""
    unsearched: dict[str, int]
    """Rollouts of the request without a readable trajectory, by reason."""


class PatternSearchList(Payload):
    """The searches of a run, the newest version of the detectors first."""

    object: Literal["list"] = "list"
    data: list[PatternSearchPayload]
    has_more: bool
