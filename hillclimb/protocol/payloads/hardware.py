"""What a plan says of machines, as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from api.clusters.quotes import Quoted
from trainer.contract.clusters.pace import Range
from trainer.contract.clusters.plan import CandidatePlan, HardwarePlan


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True)


class RangePayload(_Payload):
    """From the low to the high end."""

    low: float
    high: float

    @classmethod
    def of(cls, span: Range | None) -> Self | None:
        """Return the payload of a range; None of none."""
        return None if span is None else cls(low=span.low, high=span.high)


class EstimatePayload(_Payload):
    """Whether the run fits these machines."""

    fits: bool | None
    """Null: the model's shape or the GPU is not known."""
    problems: tuple[str, ...]
    lines: tuple[str, ...]
    """The arithmetic."""
    memory_gib: float | None
    disk_gib: float | None
    step_s: RangePayload | None


class CandidatePayload(_Payload):
    """One of `backend.skypilot.candidates`."""

    label: str
    why_not: str | None
    """Why it is left out; null: it is taken."""
    estimate: EstimatePayload | None
    remedies: tuple[str, ...]
    """Where the run does not fit: changes of which each alone would make it."""
    hourly_usd: RangePayload | None
    """Of all nodes together (USD); null: not known."""


class PricesPayload(_Payload):
    """How good the prices are."""

    as_of: datetime | None
    """When the clouds' catalogs were asked; null: no price is known."""
    is_awaited: bool
    """True while an answer, or a newer one, is on its way."""
    told: str
    """The same in a sentence."""


class HardwarePayload(_Payload):
    """What the machines of a spec come to."""

    object: Literal["hardware"] = "hardware"
    candidates: tuple[CandidatePayload, ...]
    prices: PricesPayload
    hourly_usd: RangePayload | None
    """Over the candidates that are taken (USD); null: no price is known."""
    max_hours: float
    longest_usd: RangePayload | None
    """A cluster that stays up for `max_hours` (USD)."""
    run_hours: RangePayload | None
    """All training steps, by arithmetic (hours)."""
    run_usd: RangePayload | None


def describe_hardware(
    plan: HardwarePlan, quoted: Quoted, max_hours: float, *, now: datetime
) -> HardwarePayload:
    """Return a plan's part about machines."""
    return HardwarePayload(
        candidates=tuple(_candidate(each) for each in plan.candidates),
        prices=PricesPayload(
            as_of=quoted.as_of, is_awaited=quoted.is_awaited, told=quoted.told(now=now)
        ),
        hourly_usd=RangePayload.of(plan.hourly_usd),
        max_hours=max_hours,
        longest_usd=RangePayload.of(plan.longest_usd),
        run_hours=RangePayload.of(plan.run_hours),
        run_usd=RangePayload.of(plan.run_usd),
    )


def _candidate(each: CandidatePlan) -> CandidatePayload:
    found = each.estimate
    return CandidatePayload(
        label=each.candidate.label,
        why_not=each.why_not,
        estimate=None
        if found is None
        else EstimatePayload(
            fits=found.fits,
            problems=found.problems,
            lines=found.lines,
            memory_gib=found.memory_gib,
            disk_gib=found.disk_gib,
            step_s=RangePayload.of(found.step_s),
        ),
        remedies=each.remedies,
        hourly_usd=RangePayload.of(each.hourly_usd),
    )
