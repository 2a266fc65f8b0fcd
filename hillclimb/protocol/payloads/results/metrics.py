"""Payloads of metric series."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class MetricPoint(Payload):
    """The value of a metric at one step."""

    step: int
    attempt: int
    value: float


class MetricSeries(Payload):
    """One metric under one decoding, by step."""

    object: Literal["metric"] = "metric"
    name: str
    decoding: str
    """`train`, or the decoding of an evaluation."""
    points: list[MetricPoint]


class MetricList(Payload):
    """The metric series of a run, by name and decoding."""

    object: Literal["list"] = "list"
    data: list[MetricSeries]
    sampled_at: datetime | None = None
    """When retention removed all but some points of the training metrics; null: none was."""
    has_more: bool
