"""Payloads of a run's events, and of the guards that cause some of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from hillclimb.protocol.payloads.base import Payload


class EventPayload(Payload):
    """One event of a run."""

    seq: int
    """Position in the run's journal, from 1."""
    id: str
    type: str
    created_at: datetime
    run_id: str
    attempt: int | None
    actor: str
    data: dict[str, Any]


class EventPage(Payload):
    """One page of a run's events, in order of `seq`."""

    object: Literal["list"] = "list"
    data: list[EventPayload]
    has_more: bool


class Timeline(Payload):
    """A trace that ui.perfetto.dev opens: the parts of a run with their times.

    In the Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """

    trace_events: list[dict[str, Any]] = Field(alias="traceEvents")
    """Slices, counters and names of tracks; `ts` and `dur` are microseconds since `started_at`."""
    display_time_unit: Literal["ms"] = Field("ms", alias="displayTimeUnit")
    other_data: dict[str, Any] = Field(alias="otherData")
    """`run`, `step`, `attempt`, `started_at`, and `rollouts`: how many are drawn."""


GuardAction = Literal["alert", "pause", "stop"]


class GuardEvidence(Payload):
    """Measurement of a guard's condition."""

    message: str
    """The measurement in words, with its limit."""
    measured: float | None
    """The value that is compared; null as long as there is too little to measure."""
    threshold: float
    """Its limit."""
    unit: str
    """Unit of both: `share`, `steps`, `seconds`, `nat`, `p-value` or `evaluations`."""
    n: int
    """Items that were measured (count)."""
    items: str
    """Kind of the items: `steps`, `rollouts`, `tasks` or `evaluations`."""
    first_step: int | None
    """First step of the window; null without one."""
    last_step: int | None
    low: float | None = None
    """Lower end of the 95 % interval of the measured value; null where none is used."""
    high: float | None = None
    """Upper end."""
    figures: dict[str, float | None] = Field(default_factory=dict)
    """Further figures of this guard, by name (docs/guards.md)."""


class GuardTripped(Payload):
    """Data of the event `guard.tripped`: a guard's condition has been met."""

    guard: str
    """Its key in `guards` of the spec."""
    number: int
    """Position among the guard's episodes, from 1."""
    policy: GuardAction
    action: GuardAction
    """Less than the policy if another guard had paused or stopped the run before."""
    step: int
    """Last completed step."""
    message: str
    evidence: GuardEvidence


class GuardCleared(Payload):
    """Data of the event `guard.cleared`: the condition is over, and the guard is armed again."""

    guard: str
    number: int
    step: int
    cause: Literal["recovered", "rewound"]
    """`rewound`: the run continues from a step before the one at which the guard tripped."""
    message: str


class GuardTripPayload(GuardTripped):
    """One episode of a guard's condition."""

    attempt: int
    tripped_at: datetime
    cleared_at: datetime | None
    """Null while the condition lasts."""
    cleared_step: int | None
    acknowledged_at: datetime | None = None
    """When somebody said that they have seen it; null before."""
    acknowledged_by: str | None = None


class GuardPayload(Payload):
    """A guard of a run, as of its last completed step."""

    guard: str
    policy: GuardAction | None
    """Null: off."""
    status: Literal["off", "waiting", "armed", "tripped"]
    """`waiting`: too little has been measured yet."""
    evidence: GuardEvidence | None
    """The measurement now; null for a guard that is off."""
    needs: str
    """What it would take to trip, in words; empty for a guard that is off or has tripped."""
    next_check: str
    """When it is evaluated next, in words; empty once the run has ended."""
    num_trips: int


class GuardsPayload(Payload):
    """All guards of a run, in the order in which they are evaluated."""

    object: Literal["guards"] = "guards"
    run_id: str
    guards: list[GuardPayload]
    """Empty for a run that trains nothing, or was submitted before there were guards."""
    trips: list[GuardTripPayload]
    """The newest 100 episodes, newest first."""
