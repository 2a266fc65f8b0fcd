"""Plans the hardware that a spec would rent; refuses a spec that no machine can carry out."""

from __future__ import annotations

from dataclasses import dataclass

from api.clusters.errors import NoEligibleHardware
from hillclimb.hardware.estimate import SAMPLES
from hillclimb.hardware.experimental import experimental_warning
from hillclimb.hardware.features import autodown_warning
from hillclimb.hardware.node_prerequisites import prebuilt_warning
from hillclimb.hardware.offers import Offer
from hillclimb.hardware.plan import CandidatePlan, HardwarePlan, hardware_plan
from hillclimb.spec.backend.gang import num_gpus_needed
from hillclimb.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Machines that will do, and what a user should know."""

    plan: HardwarePlan | None
    """None where the spec rents nothing."""
    warnings: tuple[str, ...]


def check(spec: RunSpec, offers: tuple[Offer, ...] | None = None) -> Checked:
    """Look at the machines that a spec asks for.

    Raises:
        NoEligibleHardware: none of them can carry it out.
    """
    plan = hardware_plan(spec, offers)
    if plan is None:
        return Checked(plan=None, warnings=())
    if plan.refusal is not None:
        raise NoEligibleHardware(plan.refusal)
    left_out = (
        f"{each.candidate.label} is left out: {each.why_not}."
        for each in plan.candidates
        if each.why_not is not None
    )
    unknown = dict.fromkeys(
        problem
        for each in plan.candidates
        if each.estimate is not None and each.estimate.fits is None
        for problem in each.estimate.problems
    )
    sentences = (*left_out, *(f"{each}." for each in unknown))
    return Checked(
        plan=plan,
        warnings=(
            *sentences,
            *_doubts(plan.candidates, spec),
            *_idle(plan.candidates, spec),
            *_left_standing(plan, spec),
        ),
    )


def _left_standing(plan: HardwarePlan, spec: RunSpec) -> tuple[str, ...]:
    """Say where a cluster that nobody ends would stay up, idle or not."""
    assert spec.backend.skypilot is not None
    warning = autodown_warning(plan.eligible, spec.backend.skypilot.idle_minutes)
    return () if warning is None else (warning,)


def _doubts(candidates: tuple[CandidatePlan, ...], spec: RunSpec) -> tuple[str, ...]:
    """Say of which machines it is not known whether the trainer would work there."""
    skypilot = spec.backend.skypilot
    assert skypilot is not None
    eligible = tuple(each.candidate for each in candidates if each.why_not is None)
    doubts = dict.fromkeys(
        sentence
        for each in eligible
        for sentence in (
            experimental_warning(spec, each, skypilot),
            prebuilt_warning(each, skypilot),
        )
    )
    return tuple(f"{each}." for each in doubts if each is not None)


def _idle(candidates: tuple[CandidatePlan, ...], spec: RunSpec) -> tuple[str, ...]:
    """Say where GPUs would be paid for that nothing uses."""
    skypilot = spec.backend.skypilot
    assert skypilot is not None
    needed = 0
    if spec.kind in SAMPLES:
        needed = num_gpus_needed(spec.engine, spec.placement, learns=spec.kind == "train")
    sentences = dict.fromkeys(
        f"{each.candidate.gpus * skypilot.num_nodes} GPUs are rented with {each.candidate.label},"
        f" and the run's workers take {needed}."
        for each in candidates
        if each.why_not is None and each.candidate.gpus * skypilot.num_nodes > needed
    )
    return tuple(sentences)
