"""Experimental features: paths of the trainer that were never run (`docs/verified.md`).

A feature is removed from this list by the change that adds its test.
"""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.spec.hosts import is_loopback
from hillclimb.spec.sections import RunSections


def experimental_features(spec: RunSections) -> Iterator[tuple[str, str]]:
    """Yield (setting, alternative) for each experimental feature that the spec uses."""
    engine = spec.engine
    if engine.tensor_parallel_size > 1:
        yield "engine.tensor_parallel_size above 1", "set the size to 1"
    if engine.kv_cache_dtype != "auto":
        yield f"engine.kv_cache_dtype {engine.kv_cache_dtype}", "set it to auto"
    if engine.kv_offload_gib:
        yield "engine.kv_offload_gib above 0", "leave it out"
    if engine.weight_transport == "nccl":
        yield "engine.weight_transport nccl on GPUs", "set it to auto"
    if spec.placement.colocate:
        yield "placement.colocate", "leave it out, and give engines and ranks GPUs of their own"
    if engine.weight_transport == "ipc":
        yield "engine.weight_transport ipc on GPUs", "set it to auto"
    if spec.tracking.wandb.mode == "online":
        yield (
            "tracking.wandb.mode online",
            "set the mode to offline and send the files with `wandb sync`",
        )
    yield from _beyond_the_machine(spec)


def _beyond_the_machine(spec: RunSections) -> Iterator[tuple[str, str]]:
    environment, teacher = spec.environment, spec.validation.teacher
    if _is_away(environment.fleet.base_url):
        yield (
            "environment.fleet.base_url outside the runner's machine",
            "point it to a server there (`hillclimb fleet serve` starts one)",
        )
    if any(_is_away(each.url) for each in environment.openenv.values()):
        yield (
            "environment.openenv with a server outside the runner's machine",
            "point it to a server there",
        )
    if teacher is not None and _is_away(teacher.base_url):
        yield (
            "validation.teacher.base_url outside the runner's machine",
            "point it to a server there",
        )
    tinker = spec.backend.tinker_server
    if tinker is not None and _is_away(tinker.base_url):
        yield (
            "backend.tinker.base_url outside the runner's machine",
            "point it to a server there (`hillclimb tinker serve` starts one)",
        )


def _is_away(url: str | None) -> bool:
    return url is not None and not is_loopback(url)
