"""What submitting a spec would rent, and the refusal of what no machine could carry out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from api.clusters.errors import NoMachineWillDo
from trainer.contract.clusters.clouds import OWN_NETWORKS
from trainer.contract.clusters.estimate import SAMPLES
from trainer.contract.clusters.experiments import doubt
from trainer.contract.clusters.features import why_not_by_itself
from trainer.contract.clusters.gang import num_gpus_needed
from trainer.contract.clusters.offers import Offer
from trainer.contract.clusters.plan import CandidatePlan, HardwarePlan, hardware_plan
from trainer.contract.clusters.strangers import doubt_prebuilt
from trainer.contract.hosts import is_loopback, is_private_to_nodes
from trainer.contract.spec import LIGHT_KINDS, RunSpec

NOBODY_RENTS = (
    "backend.type is skypilot, and this service rents no machines: start it with"
    " `hillclimb up --with-sky`, or set HILLCLIMB_CLOUDS (docs/skypilot.md)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Machines that will do, and what a user should know."""

    plan: HardwarePlan | None
    """None where the spec rents nothing."""
    warnings: tuple[str, ...]


def rents(spec: RunSpec) -> bool:
    """Say whether the run needs a cluster of its own; a preview needs none."""
    return spec.backend.type == "skypilot" and spec.kind not in LIGHT_KINDS


def refuse_unrented(spec: RunSpec, *, clouds: str) -> None:
    """Refuse a run that would wait for ever: `clouds` names nobody. Raises NoMachineWillDo."""
    if rents(spec) and not clouds:
        raise NoMachineWillDo(NOBODY_RENTS)


def refuse_cut_off(spec: RunSpec, *, api_url: str, blobs_url: str) -> None:
    """Refuse machines that could reach neither the service nor its store at these addresses.

    They would be paid until they have given up asking, or save checkpoints that go with them; and
    no launch gives nodes an address over which others on the way would read their secrets.
    Raises NoMachineWillDo.
    """
    sky = spec.backend.skypilot
    if sky is None or not rents(spec):
        return
    if sky.api_reachable and not is_private_to_nodes(api_url):
        raise NoMachineWillDo(
            f"the nodes would be told their secrets over {api_url}, in the clear: set"
            " HILLCLIMB_NODE_API_URL to an address that begins with https, or to the number of one"
            " in a private network, or backend.skypilot.api_reachable to false"
        )
    far = [each.cloud for each in sky.candidates if each.cloud not in OWN_NETWORKS]
    if not far:
        return
    if sky.api_reachable and is_loopback(api_url):
        raise NoMachineWillDo(
            f"machines on {far[0]} cannot reach the API at {api_url}: set HILLCLIMB_NODE_API_URL to"
            " an address that they can, or backend.skypilot.api_reachable to false"
        )
    if not blobs_url.startswith("s3://"):
        raise NoMachineWillDo(
            f"machines on {far[0]} cannot reach the blob store at {blobs_url}, and their"
            " checkpoints would go with them: set HILLCLIMB_NODE_BLOBS_URL (or"
            " HILLCLIMB_BLOBS_URL) to s3://BUCKET/PREFIX"
        )


def check(spec: RunSpec, offers: tuple[Offer, ...] | None = None) -> Checked:
    """Look at the machines that a spec asks for.

    Raises:
        NoMachineWillDo: none of them can carry it out.
    """
    plan = hardware_plan(spec, offers)
    if plan is None:
        return Checked(plan=None, warnings=())
    if plan.refusal is not None:
        raise NoMachineWillDo(plan.refusal)
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
    told = (*left_out, *(f"{each}." for each in unknown))
    return Checked(
        plan=plan,
        warnings=(
            *told,
            *_doubts(plan.candidates, spec),
            *_idle(plan.candidates, spec),
            *_left_standing(plan, spec),
            *_cut_short(plan, spec),
        ),
    )


def _left_standing(plan: HardwarePlan, spec: RunSpec) -> tuple[str, ...]:
    """Say where a cluster that nobody ends would stay up, idle or not."""
    assert spec.backend.skypilot is not None
    told = why_not_by_itself(plan.taken, spec.backend.skypilot.idle_minutes)
    return () if told is None else (told,)


def _cut_short(plan: HardwarePlan, spec: RunSpec) -> Iterator[str]:
    """Say which of the spec's own limits its steps are estimated to pass.

    The limit of a step is for each, so that one is enough; that of all steps is said to be passed
    where even the low end passes it.
    """
    steps, sky = plan.step_s, spec.backend.skypilot
    assert sky is not None
    if steps is None or plan.run_hours is None:
        return
    if steps.high > spec.schedule.step_timeout_s:
        yield (
            f"a step takes {steps.low:.0f} to {steps.high:.0f} s by the estimate, and"
            f" schedule.step_timeout_s is {spec.schedule.step_timeout_s:g}: the run pauses at one"
            " that takes longer."
        )
    hours, usd, budget = plan.run_hours.low, plan.run_usd, spec.budget
    limits = [("backend.skypilot.max_hours", hours, "h", sky.max_hours)]
    if budget is not None and budget.hours is not None:
        limits.append(("budget.hours", hours, "h", budget.hours))
    if budget is not None and budget.usd is not None and usd is not None:
        limits.append(("budget.usd", usd.low, "USD", budget.usd))
    for setting, least, unit, limit in limits:
        if least > limit:
            yield (
                f"all steps take at least {least:.1f} {unit} by the estimate, and {setting} is"
                f" {limit:g}: the run pauses before its end."
            )


def _doubts(candidates: tuple[CandidatePlan, ...], spec: RunSpec) -> tuple[str, ...]:
    """Say of which machines it is not known whether the trainer would work there."""
    skypilot = spec.backend.skypilot
    assert skypilot is not None
    taken = tuple(each.candidate for each in candidates if each.why_not is None)
    doubts = dict.fromkeys(
        said
        for each in taken
        for said in (doubt(spec, each, skypilot), doubt_prebuilt(each, skypilot))
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
