"""Payloads of the signal report."""

from __future__ import annotations

from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class TrendPayload(Payload):
    """Change of the mean score per step, with its 95 % interval."""

    slope: float
    low: float
    high: float


class SignalPoint(Payload):
    """One environment in one step."""

    step: int
    num_groups: int
    """Groups with two grades or more."""
    signal_ratio: float | None
    variance_per_prompt: float | None


class SignalFigures(Payload):
    """The signal over a window of steps; shares are in [0, 1]."""

    num_steps: int
    """Steps in which a group had two grades."""
    num_groups: int
    coverage: float
    """Share of rollouts with a grade."""
    mean_score: float | None
    signal_steps: float | None
    """Share of steps with a group whose scores differ."""
    signal_ratio: float | None
    """Share of groups whose scores differ."""
    signal_ratio_low: float
    """Lower end of the 95 % interval."""
    signal_ratio_high: float
    """Upper end of the 95 % interval."""
    all_zero_ratio: float | None
    """Share of groups whose scores are all 0."""
    all_one_ratio: float | None
    """Share of groups whose scores are all 1."""
    variance_per_prompt: float | None
    """Population variance of a group's scores, averaged over groups."""
    is_below_border: bool
    """Whether `signal_steps` lies below 25 %."""
    trend: TrendPayload | None
    """Null with fewer than 5 steps."""
    reading: str
    """`no_grades`, `saturated`, `too_hard`, `split`, `learning`, `falling`, `unclipped` or
    `not_moving`."""
    why: str
    """The reading as a sentence with its figures."""


class EnvSignalPayload(SignalFigures):
    """The signal of one environment."""

    steps: list[SignalPoint]


class SignalReportPayload(Payload):
    """The signal report of a run."""

    object: Literal["signal"] = "signal"
    run_id: str
    first_step: int | None
    """First step of the window; null where no step has ended."""
    last_step: int | None
    clip_ratio: float | None
    """Mean share of clipped tokens in the window."""
    all: SignalFigures
    environments: dict[str, EnvSignalPayload]
