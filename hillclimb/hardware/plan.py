"""Hardware plan of a spec: eligible candidates, estimates and prices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from hillclimb.hardware.estimate import Estimate, estimate
from hillclimb.hardware.experimental import why_experimental
from hillclimb.hardware.features import FEATURES, why_ineligible
from hillclimb.hardware.gpus import closest_gpu, gpu_named
from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.hardware.node_prerequisites import missing_prerequisite
from hillclimb.hardware.offers import Offer
from hillclimb.hardware.suggestions import suggestions
from hillclimb.spec.backend.gang import why_engines_split, why_not_on
from hillclimb.spec.backend.skypilot import CandidateSpec, SkyPilotSpec
from hillclimb.spec.run import RunSpec

WITHOUT_CATALOG = ("kubernetes", "slurm")
"""Clouds without a catalog: the operator's own clusters."""


@dataclass(frozen=True, slots=True)
class Range:
    """Prices (USD), from the lowest to the highest."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Return the prices times a factor."""
        return Range(self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePlan:
    """A candidate of the spec with its estimate and price."""

    candidate: CandidateSpec
    why_not: str | None
    """Reason for which it is not eligible; None: it is eligible."""
    estimate: Estimate | None
    """None if it is ineligible for another reason than its size."""
    suggestions: tuple[str, ...] = ()
    """If the run does not fit: changes of the spec, each of which alone would make it fit."""
    hourly_usd: Range | None = None
    """Hourly price of all nodes, over its offers (USD); None if no price is known."""

    @property
    def sized(self) -> CandidateSpec:
        """The candidate with memory and disk from the estimate where the spec sets none."""
        estimate, candidate = self.estimate, self.candidate
        if estimate is None or estimate.memory_gib is None or estimate.disk_gib is None:
            return candidate
        memory, disk = candidate.memory_gb, candidate.disk_gb
        has_disk = FEATURES[candidate.cloud].custom_disk
        return candidate.model_copy(
            update={
                "memory_gb": memory or ceil(estimate.memory_gib),
                "disk_gb": disk or (ceil(estimate.disk_gib) if has_disk else None),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwarePlan:
    """Plan of all candidates, with the range of prices."""

    candidates: tuple[CandidatePlan, ...]
    hourly_usd: Range | None
    """Hourly price over the eligible candidates (USD); None if none has a known price."""
    longest_usd: Range | None
    """Price of a cluster that runs for `max_hours` (USD)."""

    @property
    def eligible(self) -> tuple[CandidateSpec, ...]:
        """The eligible candidates, in the order of the spec, with sizes filled in."""
        return tuple(each.sized for each in self.candidates if each.why_not is None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons for which the other candidates are ineligible."""
        return tuple(each.why_not for each in self.candidates if each.why_not is not None)

    @property
    def refusal(self) -> str | None:
        """Explanation with the arithmetic if no candidate is eligible; else None."""
        if self.eligible:
            return None
        return "none of backend.skypilot.candidates is eligible. " + "\n".join(self._explained())

    def _explained(self) -> Iterator[str]:
        for each in self.candidates:
            yield f"{each.candidate.label}: {each.why_not}."
            if each.estimate is not None and each.estimate.misfits:
                yield from (f"    {line}" for line in each.estimate.lines)
            if each.suggestions:
                yield f"    It would fit with {', or '.join(each.suggestions)}."


def hardware_plan(
    spec: RunSpec, offers: Sequence[Offer] | None = None, shape: ModelShape | None = None
) -> HardwarePlan | None:
    """Return the plan of the spec's machines; None if it rents none.

    `offers` are those of the clouds' catalogs; None: they are not known yet.
    """
    skypilot = spec.backend.skypilot
    if skypilot is None:
        return None
    plans = tuple(
        _plan_one(spec, skypilot, index, _of(index, offers), shape, is_any_listed=bool(offers))
        for index in range(len(skypilot.candidates))
    )
    hourly = _span(each.hourly_usd for each in plans if each.why_not is None)
    return HardwarePlan(
        candidates=plans,
        hourly_usd=hourly,
        longest_usd=None if hourly is None else hourly.times(skypilot.max_hours),
    )


def _of(index: int, offers: Sequence[Offer] | None) -> tuple[Offer, ...] | None:
    return None if offers is None else tuple(each for each in offers if each.candidate == index)


def _plan_one(
    spec: RunSpec,
    skypilot: SkyPilotSpec,
    index: int,
    offers: tuple[Offer, ...] | None,
    shape: ModelShape | None,
    *,
    is_any_listed: bool = False,
) -> CandidatePlan:
    candidate, nodes = skypilot.candidates[index], skypilot.num_nodes
    learns = spec.kind == "train"
    why_not = (
        why_ineligible(candidate, skypilot)
        or why_not_on(candidate, nodes, spec.engine, spec.placement, learns=learns)
        or why_engines_split(candidate, nodes, spec.engine)
        or why_experimental(spec, candidate, skypilot)
        or missing_prerequisite(spec, candidate)
    )
    if why_not is not None:
        return CandidatePlan(candidate=candidate, why_not=why_not, estimate=None)
    fit = estimate(spec, candidate, nodes, shape)
    if fit.fits is False:
        return CandidatePlan(
            candidate=candidate,
            why_not=_why_refused(fit),
            estimate=fit,
            suggestions=suggestions(spec, candidate, nodes, shape),
        )
    affordable = [each.hourly_usd for each in offers or () if _is_affordable(candidate, each)]
    unlisted = _unlisted(candidate, offers, is_any_listed=is_any_listed)
    return CandidatePlan(
        candidate=candidate,
        why_not=unlisted or (_too_expensive(candidate, offers) if not affordable else None),
        estimate=fit,
        hourly_usd=Range(min(affordable), max(affordable)) if affordable else None,
    )


def _why_refused(fit: Estimate) -> str:
    """Return what is wrong: settings by their own sentences, then what memory and disk lack."""
    sizes = (f"it does not fit: {'; '.join(fit.misfits)}",) if fit.misfits else ()
    return "; ".join((*fit.wrong_settings, *sizes))


def _is_affordable(candidate: CandidateSpec, offer: Offer) -> bool:
    limit = candidate.max_hourly_usd
    return limit is None or offer.hourly_usd <= limit


def _unlisted(
    candidate: CandidateSpec, offers: tuple[Offer, ...] | None, *, is_any_listed: bool
) -> str | None:
    """Return that the cloud's catalog lacks the machine; None if the catalog may be incomplete."""
    gpu, cloud = candidate.gpu_name, candidate.cloud
    if offers is None or offers or gpu is None or cloud in WITHOUT_CATALOG:
        return None
    if not is_any_listed and gpu_named(gpu) is not None:
        return None
    close = None if gpu_named(gpu) else closest_gpu(gpu)
    hint = f"did you mean {close}:{candidate.gpus}?" if close else "check its size and its region"
    return f"the catalog of {cloud} lists no {candidate.accelerators} of that kind: {hint}"


def _too_expensive(candidate: CandidateSpec, offers: tuple[Offer, ...] | None) -> str | None:
    """Return that all offers are above the price limit; None if there are no offers."""
    if not offers:
        return None
    least = min(each.hourly_usd for each in offers)
    return (
        f"it costs {least:.2f} USD an hour at least, more than max_hourly_usd"
        f" {candidate.max_hourly_usd:g}: raise it, or use another candidate"
    )


def _span(ranges: Iterator[Range | None]) -> Range | None:
    priced = [each for each in ranges if each is not None]
    return Range(min(r.low for r in priced), max(r.high for r in priced)) if priced else None
