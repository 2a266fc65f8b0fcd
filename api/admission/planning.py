"""Plans the hardware that a spec would rent; rejects a spec that no machine can execute."""

from __future__ import annotations

from dataclasses import dataclass

from api.clusters.errors import NoEligibleHardware
from api.runs.errors import ModelUnsupported
from hillclimb.hardware.estimate import SAMPLES, model_problems
from hillclimb.hardware.experimental import experimental_warning
from hillclimb.hardware.features import autodown_warning
from hillclimb.hardware.model.published import shape_of
from hillclimb.hardware.model.unsupported import why_unsupported
from hillclimb.hardware.node_prerequisites import prebuilt_warning
from hillclimb.hardware.offers import Offer
from hillclimb.hardware.plan import CandidatePlan, HardwarePlan, hardware_plan
from hillclimb.spec.backend.counts import counted, either
from hillclimb.spec.backend.gang import num_gpus_needed
from hillclimb.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The hardware plan of an accepted spec, with its warnings."""

    plan: HardwarePlan | None
    """None for a spec that rents no machines."""
    warnings: tuple[str, ...]


def check(spec: RunSpec, offers: tuple[Offer, ...] | None = None) -> Checked:
    """Return the hardware plan of a spec, with warnings.

    Raises:
        ModelUnsupported: the name of its model says that it cannot be trained, or not so.
        NoEligibleHardware: no candidate can execute the run.
    """
    # On a server of the Tinker protocol the source only names a tokenizer.
    is_ours = spec.backend.type != "tinker" and spec.kind in (*SAMPLES, "sft")
    if is_ours and (why := why_unsupported(spec.model.source)) is not None:
        raise ModelUnsupported(why)
    plan = hardware_plan(spec, offers)
    if plan is None:
        if is_ours:
            _refuse_misfits(spec)
        return Checked(plan=None, warnings=())
    if plan.refusal is not None:
        raise NoEligibleHardware(plan.refusal)
    left_out = (
        f"{candidate.candidate.label} is left out: {candidate.why_not}."
        for candidate in plan.candidates
        if candidate.why_not is not None
    )
    unknown = dict.fromkeys(
        problem
        for candidate in plan.candidates
        if candidate.estimate is not None and candidate.estimate.fits is None
        for problem in candidate.estimate.problems
    )
    sentences = (*left_out, *(f"{problem}." for problem in unknown))
    return Checked(
        plan=plan,
        warnings=(
            *sentences,
            *_machine_warnings(plan.candidates, spec),
            *_idle_gpu_warnings(plan.candidates, spec),
            *_autodown_warnings(plan, spec),
        ),
    )


def _refuse_misfits(spec: RunSpec) -> None:
    """Reject settings that the model does not allow on any machine.

    Raises:
        ModelUnsupported: it has such settings.
    """
    shape = shape_of(spec.model.source) if spec.kind in SAMPLES else None
    problems = [] if shape is None else list(model_problems(spec, shape))
    if problems:
        raise ModelUnsupported(f"{'; '.join(problems)}.")


def _autodown_warnings(plan: HardwarePlan, spec: RunSpec) -> tuple[str, ...]:
    """Warn of clouds that do not stop an idle cluster by themselves."""
    assert spec.backend.skypilot is not None
    warning = autodown_warning(plan.eligible, spec.backend.skypilot.idle_minutes)
    return () if warning is None else (warning,)


def _machine_warnings(candidates: tuple[CandidatePlan, ...], spec: RunSpec) -> tuple[str, ...]:
    """Warn of candidates on which the trainer was never tested."""
    skypilot = spec.backend.skypilot
    assert skypilot is not None
    eligible = tuple(each.candidate for each in candidates if each.why_not is None)
    warnings = dict.fromkeys(
        sentence
        for each in eligible
        for sentence in (
            experimental_warning(spec, each, skypilot),
            prebuilt_warning(each, skypilot),
        )
    )
    return tuple(f"{sentence}." for sentence in warnings if sentence is not None)


def _idle_gpu_warnings(candidates: tuple[CandidatePlan, ...], spec: RunSpec) -> tuple[str, ...]:
    """Warn of candidates with more GPUs than the run uses."""
    skypilot = spec.backend.skypilot
    assert skypilot is not None
    needed = 0
    if spec.kind in SAMPLES:
        needed = num_gpus_needed(spec.engine, spec.placement, learns=spec.kind == "train")
    sentences = dict.fromkeys(
        f"{counted(rented, 'GPU')} {either(rented, 'is', 'are')} rented with"
        f" {each.candidate.label}, and the run's workers take {needed}."
        for each in candidates
        if each.why_not is None and (rented := each.candidate.gpus * skypilot.num_nodes) > needed
    )
    return tuple(sentences)
