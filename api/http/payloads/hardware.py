"""Builds the hardware payload of a plan."""

from __future__ import annotations

from datetime import datetime

from api.clusters.quotes import Quotes
from hillclimb.hardware.plan import CandidatePlan, HardwarePlan, Range
from hillclimb.protocol.payloads.hardware import (
    CandidatePayload,
    EstimatePayload,
    HardwarePayload,
    PricesPayload,
    RangePayload,
)


def describe_hardware(
    plan: HardwarePlan, quoted: Quotes, max_hours: float, *, now: datetime
) -> HardwarePayload:
    """Return the hardware plan with its prices as a payload."""
    return HardwarePayload(
        candidates=tuple(_candidate(each) for each in plan.candidates),
        prices=PricesPayload(
            as_of=quoted.as_of, is_awaited=quoted.is_awaited, summary=quoted.summary(now=now)
        ),
        hourly_usd=_range(plan.hourly_usd),
        max_hours=max_hours,
        longest_usd=_range(plan.longest_usd),
    )


def _candidate(each: CandidatePlan) -> CandidatePayload:
    estimate = each.estimate
    return CandidatePayload(
        label=each.candidate.label,
        why_not=each.why_not,
        estimate=None
        if estimate is None
        else EstimatePayload(
            fits=estimate.fits,
            problems=estimate.problems,
            lines=estimate.lines,
            memory_gib=estimate.memory_gib,
            disk_gib=estimate.disk_gib,
            busy_share=None if estimate.step_time is None else estimate.step_time.busy_share,
        ),
        suggestions=each.suggestions,
        hourly_usd=_range(each.hourly_usd),
    )


def _range(span: Range | None) -> RangePayload | None:
    return None if span is None else RangePayload(low=span.low, high=span.high)
