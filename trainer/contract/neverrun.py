"""Paths of the trainer that a spec can ask for and that were never run: `docs/verified.md`.

A path leaves this list with the test that runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainer.contract.hosts import is_loopback

if TYPE_CHECKING:
    from trainer.contract.spec import RunSpec


def never_run(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield (setting, what to do instead) for each such path that the spec asks for."""
    engine = spec.engine
    if engine.tensor_parallel_size > 1:
        yield "engine.tensor_parallel_size above 1", "set the size to 1"
    if engine.weight_transport == "nccl":
        yield "engine.weight_transport nccl on GPUs", "set it to auto"
    if engine.weight_transport == "ipc":
        yield "engine.weight_transport ipc on GPUs", "set it to auto"
    if spec.tracking.wandb.mode == "online":
        yield (
            "tracking.wandb.mode online",
            "set the mode to offline and send the files with `wandb sync`",
        )
    yield from _beyond_the_machine(spec)


def _beyond_the_machine(spec: RunSpec) -> Iterator[tuple[str, str]]:
    fleet, openenv = spec.environment.fleet.base_url, spec.environment.openenv.values()
    teacher, tinker = spec.validation.teacher, spec.backend.tinker_server
    servers: dict[str, tuple[list[str | None], str]] = {
        "environment.fleet.base_url": (
            [fleet],
            "point it to a server there (`hillclimb fleet serve` starts one)",
        ),
        "environment.openenv with a server": (
            [each.url for each in openenv],
            "point it to a server there",
        ),
        "validation.teacher.base_url": (
            [None if teacher is None else teacher.base_url],
            "point it to a server there",
        ),
        "backend.tinker.base_url": (
            [None if tinker is None else tinker.base_url],
            "point it to a server there (`hillclimb tinker serve` starts one)",
        ),
    }
    for setting, (urls, instead) in servers.items():
        if any(url is not None and not is_loopback(url) for url in urls):
            yield f"{setting} outside the runner's machine", instead
