"""Experimental hardware: rented machines on which the trainer was never run.

There the trainer ends with `spec_rejected` unless the spec sets `experimental` or has evidence of
`hillclimb accept` (`trainer.inputs.accepted_paths`), after the machines were paid for. A sure
refusal is therefore reported before; settings of the spec alone are in
`hillclimb.spec.rules.experimental_features`.
"""

from __future__ import annotations

from hillclimb.hardware.estimate import SAMPLES
from hillclimb.spec.backend.skypilot import CandidateSpec, SkyPilotSpec
from hillclimb.spec.preflight.accepted_paths import accepted_for
from hillclimb.spec.rules.experimental_features import proof_of
from hillclimb.spec.run import RunSpec


def why_experimental(spec: RunSpec, candidate: CandidateSpec, skypilot: SkyPilotSpec) -> str | None:
    """Return why the trainer is sure to refuse these machines; None if it is not sure."""
    if spec.experimental or spec.kind not in SAMPLES:
        return None
    is_cluster_accepted = accepted_for(spec.accepted, "cluster", candidate.infra)
    if skypilot.num_nodes > 1 and not is_cluster_accepted:
        return (
            "a run was never spread over several machines (docs/verified.md), and num_nodes is"
            f" {skypilot.num_nodes}: set experimental to true to try it,{proof_of('cluster')} or"
            " set num_nodes to 1"
        )
    if skypilot.trainer.type == "wheel" and not _are_gpus_accepted(spec, candidate):
        return (
            "no run with the locked versions of torch and vLLM was on a GPU (docs/verified.md): set"
            f" experimental to true to try it,{proof_of('gpu')} or use machines without GPUs"
        )
    return None


def experimental_warning(
    spec: RunSpec, candidate: CandidateSpec, skypilot: SkyPilotSpec
) -> str | None:
    """Return a warning if the trainer may refuse the GPUs, depending on a foreign environment."""
    if spec.experimental or spec.kind not in SAMPLES or _are_gpus_accepted(spec, candidate):
        return None
    if skypilot.trainer.type == "wheel":
        return None
    return (
        f"the trainer refuses {candidate.label} if the environment there can use its GPUs: no run"
        " with the locked versions of torch and vLLM was on one (docs/verified.md), and"
        " experimental is false"
    )


def _are_gpus_accepted(spec: RunSpec, candidate: CandidateSpec) -> bool:
    """Return True without GPUs, and for GPUs of a kind that the spec has evidence of."""
    gpu = candidate.gpu_name
    return gpu is None or bool(accepted_for(spec.accepted, "gpu", gpu))
