"""What the machines that a spec asks for come to: which will do, whether it fits, what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from trainer.contract.clusters.estimate import Estimate, estimate
from trainer.contract.clusters.experiments import why_never_run
from trainer.contract.clusters.features import FEATURES, why_ineligible
from trainer.contract.clusters.gang import why_engines_split, why_not_on
from trainer.contract.clusters.gpus import gpu_named, meant
from trainer.contract.clusters.offers import Offer
from trainer.contract.clusters.pace import Range
from trainer.contract.clusters.remedies import remedies
from trainer.contract.clusters.shapes import ModelShape
from trainer.contract.clusters.spec import CandidateSpec, SkyPilotSpec
from trainer.contract.clusters.strangers import why_not_there
from trainer.contract.spec import RunSpec

WITHOUT_CATALOG = ("kubernetes", "slurm")
"""Each cluster of the operator's has what it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePlan:
    """One of the machines that would do."""

    candidate: CandidateSpec
    why_not: str | None
    """Why it is left out; None: it is taken."""
    estimate: Estimate | None
    """None where it is left out for another reason than its size."""
    remedies: tuple[str, ...] = ()
    """Where the run does not fit: changes of the spec of which each alone would make it."""
    hourly_usd: Range | None = None
    """Of the gang, over its offers (USD); None where no price is known."""

    @property
    def sized(self) -> CandidateSpec:
        """The candidate with the sizes that it leaves open, as far as the estimate knows them."""
        found, candidate = self.estimate, self.candidate
        if found is None or found.memory_gib is None or found.disk_gib is None:
            return candidate
        memory, disk = candidate.memory_gb, candidate.disk_gb
        has_disk = FEATURES[candidate.cloud].custom_disk
        return candidate.model_copy(
            update={
                "memory_gb": memory or ceil(found.memory_gib),
                "disk_gb": disk or (ceil(found.disk_gib) if has_disk else None),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwarePlan:
    """All of them."""

    candidates: tuple[CandidatePlan, ...]
    hourly_usd: Range | None
    """Over the candidates that are taken; None where none of them has a known price."""
    longest_usd: Range | None
    """The same for a cluster that stays up for `max_hours`."""
    step_s: Range | None
    """One training step (seconds), over the candidates that are taken; None where nothing was
    estimated."""
    run_hours: Range | None
    """All training steps, by the estimates; None where nothing was estimated."""
    run_usd: Range | None
    """The same in USD; None where price or time is unknown."""

    @property
    def taken(self) -> tuple[CandidateSpec, ...]:
        """What may be asked for, in the order of the spec, with sizes filled in."""
        return tuple(each.sized for each in self.candidates if each.why_not is None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each of the others is left out."""
        return tuple(each.why_not for each in self.candidates if each.why_not is not None)

    @property
    def refusal(self) -> str | None:
        """Why the spec cannot be carried out at all, with the arithmetic; None where it can."""
        if self.taken:
            return None
        return "none of backend.skypilot.candidates will do. " + "\n".join(self._explained())

    def _explained(self) -> Iterator[str]:
        for each in self.candidates:
            yield f"{each.candidate.label}: {each.why_not}."
            if each.estimate is not None and each.estimate.fits is False:
                yield from (f"    {line}" for line in each.estimate.lines)
                if each.remedies:
                    yield f"    It would fit with {', or '.join(each.remedies)}."


def hardware_plan(
    spec: RunSpec, offers: Sequence[Offer] | None = None, shape: ModelShape | None = None
) -> HardwarePlan | None:
    """Return what the spec's machines come to; None where it rents none.

    `offers` are what the clouds' catalogs have; None: nobody has said yet.
    """
    skypilot = spec.backend.skypilot
    if skypilot is None:
        return None
    plans = tuple(
        _plan_one(spec, skypilot, index, _of(index, offers), shape, is_any_listed=bool(offers))
        for index in range(len(skypilot.candidates))
    )
    hourly = _span(each.hourly_usd for each in plans if each.why_not is None)
    steps = _steps(plans)
    total = spec.schedule.total_steps / 3600
    hours = _times(steps, Range(total, total))
    return HardwarePlan(
        candidates=plans,
        hourly_usd=hourly,
        longest_usd=_times(hourly, Range(skypilot.max_hours, skypilot.max_hours)),
        step_s=steps,
        run_hours=hours,
        run_usd=_times(hourly, hours),
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
        or why_never_run(spec, candidate, skypilot)
        or why_not_there(spec, candidate)
    )
    if why_not is not None:
        return CandidatePlan(candidate=candidate, why_not=why_not, estimate=None)
    found = estimate(spec, candidate, nodes, shape)
    if found.fits is False:
        return CandidatePlan(
            candidate=candidate,
            why_not="it does not fit: " + "; ".join(found.problems),
            estimate=found,
            remedies=remedies(spec, candidate, nodes, shape),
        )
    affordable = [each.hourly_usd for each in offers or () if _is_affordable(candidate, each)]
    unlisted = _unlisted(candidate, offers, is_any_listed=is_any_listed)
    return CandidatePlan(
        candidate=candidate,
        why_not=unlisted or (_too_dear(candidate, offers) if not affordable else None),
        estimate=found,
        hourly_usd=Range(min(affordable), max(affordable)) if affordable else None,
    )


def _is_affordable(candidate: CandidateSpec, offer: Offer) -> bool:
    limit = candidate.max_hourly_usd
    return limit is None or offer.hourly_usd <= limit


def _unlisted(
    candidate: CandidateSpec, offers: tuple[Offer, ...] | None, *, is_any_listed: bool
) -> str | None:
    """Say that the cloud's catalog has no such machine; a catalog may also be silent of all."""
    gpu, cloud = candidate.gpu_name, candidate.cloud
    if offers is None or offers or gpu is None or cloud in WITHOUT_CATALOG:
        return None
    if not is_any_listed and gpu_named(gpu) is not None:
        return None
    close = None if gpu_named(gpu) else meant(gpu)
    hint = f"did you mean {close}:{candidate.gpus}?" if close else "check its size and its region"
    return f"the catalog of {cloud} lists no {candidate.accelerators} of that kind: {hint}"


def _too_dear(candidate: CandidateSpec, offers: tuple[Offer, ...] | None) -> str | None:
    """Say that all offers are above the limit; a catalog without any says nothing."""
    if not offers:
        return None
    least = min(each.hourly_usd for each in offers)
    return (
        f"it costs {least:.2f} USD an hour at least, more than max_hourly_usd"
        f" {candidate.max_hourly_usd:g}: raise it, or take another candidate"
    )


def _span(ranges: Iterator[Range | None]) -> Range | None:
    known = [each for each in ranges if each is not None]
    return Range(min(r.low for r in known), max(r.high for r in known)) if known else None


def _times(first: Range | None, second: Range | None) -> Range | None:
    if first is None or second is None:
        return None
    return Range(first.low * second.low, first.high * second.high)


def _steps(plans: Sequence[CandidatePlan]) -> Range | None:
    return _span(
        each.estimate.step_s for each in plans if each.why_not is None and each.estimate is not None
    )
