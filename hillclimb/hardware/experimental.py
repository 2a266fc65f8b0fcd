"""Which rented machines would refuse a run because nothing of the trainer was ever run on such.

The trainer ends there with `spec_rejected` unless the spec says `experimental`
(`trainer.wiring.refuse_gpu`, `trainer.placement.crew`): they would be paid for nothing. What
is sure to end so is refused before; a setting of the spec alone is in `trainer.contract.neverrun`.
"""

from __future__ import annotations

from trainer.contract.clusters.estimate import SAMPLES
from trainer.contract.clusters.spec import CandidateSpec, SkyPilotSpec
from trainer.contract.spec import RunSpec


def why_never_run(spec: RunSpec, candidate: CandidateSpec, skypilot: SkyPilotSpec) -> str | None:
    """Say why the trainer is sure to refuse so many of these machines; None where it is not."""
    if spec.experimental or spec.kind not in SAMPLES:
        return None
    if skypilot.num_nodes > 1:
        return (
            "a run was never spread over several machines (docs/verified.md), and num_nodes is"
            f" {skypilot.num_nodes}: set experimental to true to try it, or num_nodes to 1"
        )
    if candidate.gpus and skypilot.trainer.type == "wheel":
        return (
            "no part of the trainer was ever run on a GPU (docs/verified.md): set experimental to"
            " true to try it, or take machines without GPUs"
        )
    return None


def doubt(spec: RunSpec, candidate: CandidateSpec, skypilot: SkyPilotSpec) -> str | None:
    """Warn where it depends on an environment that is not ours, which may have no CUDA."""
    if spec.experimental or spec.kind not in SAMPLES or not candidate.gpus:
        return None
    if skypilot.trainer.type == "wheel":
        return None
    return (
        f"the trainer refuses {candidate.label} if the environment there can use its GPUs: nothing"
        " was ever run on one (docs/verified.md), and experimental is false"
    )
