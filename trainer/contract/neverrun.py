"""Paths of the trainer that a spec can ask for and that were never run: `docs/verified.md`.

A path leaves this list with the test that runs it.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainer.contract.hosts import is_loopback
from trainer.contract.preflight import TeacherSpec
from trainer.contract.sections import EngineSpec, EnvironmentSpec
from trainer.contract.tracking import TrackingSpec


def never_run(
    engine: EngineSpec,
    tracking: TrackingSpec,
    environment: EnvironmentSpec,
    teacher: TeacherSpec | None,
) -> Iterator[tuple[str, str]]:
    """Yield (setting, what to do instead) for each such path that these sections ask for."""
    if engine.tensor_parallel_size > 1:
        yield "engine.tensor_parallel_size above 1", "set the size to 1"
    if engine.weight_transport == "nccl":
        yield "engine.weight_transport nccl on GPUs", "set it to auto"
    if engine.weight_transport == "ipc":
        yield "engine.weight_transport ipc on GPUs", "set it to auto"
    if tracking.wandb.mode == "online":
        yield (
            "tracking.wandb.mode online",
            "set the mode to offline and send the files with `wandb sync`",
        )
    url = environment.fleet.base_url
    if url is not None and not is_loopback(url):
        yield (
            "environment.fleet.base_url outside the runner's machine",
            "point it to a server there (`hillclimb fleet serve` starts one)",
        )
    if any(not is_loopback(each.url) for each in environment.openenv.values()):
        yield (
            "environment.openenv with a server outside the runner's machine",
            "point it to a server there",
        )
    if teacher is not None and not is_loopback(teacher.base_url):
        yield (
            "validation.teacher.base_url outside the runner's machine",
            "point it to a server there",
        )
