"""Rules that a run's workers fit the GPUs of its candidates."""

from __future__ import annotations

from hillclimb.spec.backend.counts import counted, either
from hillclimb.spec.backend.skypilot import CandidateSpec, SkyPilotSpec
from hillclimb.spec.training.engine import EngineSpec
from hillclimb.spec.training.placement import PlacementSpec

ONE_MACHINE = ("auto", "shm", "lora")
"""Weight transports through the shared memory of one machine."""


def num_gpus_needed(engine: EngineSpec, placement: PlacementSpec, *, learns: bool) -> int:
    """GPUs of engines and ranks (count); with transport `ipc` an engine and a rank share one."""
    ranks = placement.learner_ranks if learns else 0
    engines = engine.data_parallel_size * engine.tensor_parallel_size
    return max(engines, ranks) if engine.weight_transport == "ipc" else engines + ranks


def refuse_misfit(
    skypilot: SkyPilotSpec, engine: EngineSpec, placement: PlacementSpec, *, learns: bool
) -> None:
    """Refuse sizes that no candidate has GPUs for, and several nodes for inline placement.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if skypilot.num_nodes > 1 and placement.type == "inline":
        raise ValueError(
            f"backend.skypilot.num_nodes is {skypilot.num_nodes}, and placement.type inline uses"
            " one node: set placement.type to ray or num_nodes to 1"
        )
    reasons = [
        why_not_on(each, skypilot.num_nodes, engine, placement, learns=learns)
        for each in skypilot.candidates
    ]
    if all(reasons):
        raise ValueError(str(reasons[0]))


def why_engines_split(candidate: CandidateSpec, num_nodes: int, engine: EngineSpec) -> str | None:
    """Return why not all engines fit on the nodes; None if they do. No engine spans two nodes."""
    size, engines = engine.tensor_parallel_size, engine.data_parallel_size
    capacity = num_nodes * (candidate.gpus // size)
    if candidate.gpus == 0 or engines <= capacity:
        return None
    return (
        f"engine.data_parallel_size is {engines}, and {num_nodes} x {candidate.label}"
        f" {either(num_nodes, 'has', 'have')} room for {counted(capacity, 'engine')} of"
        f" engine.tensor_parallel_size {size}, each on one node: lower one of them or raise"
        " backend.skypilot.num_nodes"
    )


def why_not_on(
    candidate: CandidateSpec,
    num_nodes: int,
    engine: EngineSpec,
    placement: PlacementSpec,
    *,
    learns: bool,
) -> str | None:
    """Return why the workers do not fit on this number of machines; None if they do.

    Machines without GPUs take any number of workers.
    """
    if candidate.gpus == 0:
        return None
    needed = num_gpus_needed(engine, placement, learns=learns)
    available = candidate.gpus * num_nodes
    sizes = (
        f"engine.data_parallel_size {engine.data_parallel_size} x engine.tensor_parallel_size"
        f" {engine.tensor_parallel_size}"
    )
    if learns:
        sizes += f" and placement.learner_ranks {placement.learner_ranks}"
    if needed > available:
        return (
            f"{sizes} need {needed} GPUs, and {num_nodes} x {candidate.label}"
            f" {either(num_nodes, 'has', 'have')} {available}: lower one of them or raise"
            " backend.skypilot.num_nodes"
        )
    if engine.tensor_parallel_size > candidate.gpus:
        return (
            f"engine.tensor_parallel_size {engine.tensor_parallel_size} needs that many GPUs on one"
            f" node, and {candidate.label} has {candidate.gpus}: lower it"
        )
    if needed > candidate.gpus and learns and engine.weight_transport in ONE_MACHINE:
        return (
            f"{sizes} need {needed} GPUs, more than one node of {candidate.label} has, and"
            f" engine.weight_transport {engine.weight_transport} passes weights through the memory"
            " of one machine: set it to nccl"
        )
    return None
