"""Experimental features: paths of the trainer that were never run (`docs/verified.md`).

A feature is removed from this list by the change that adds its test. On one installation evidence
of `hillclimb accept` does it, for the paths that can be accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hillclimb.spec.hosts import is_loopback
from hillclimb.spec.preflight.accepted_paths import (
    ACCEPTABLE,
    AcceptedPath,
    ExperimentalPath,
    accepted_for,
)
from hillclimb.spec.sections import RunSections

COMMANDS = {
    "tensor_parallel": "gpu --set engine.tensor_parallel_size=2",
    "nccl": "gpu --set engine.type=vllm --set engine.weight_transport=nccl",
    "ipc": "gpu --set engine.type=vllm --set engine.weight_transport=ipc",
    "fp8_cache": "gpu --set engine.type=vllm --set engine.dtype=bfloat16"
    " --set engine.kv_cache_dtype=fp8",
    "colocate": "gpu --set engine.type=vllm --set engine.weight_transport=ipc"
    " --set placement.colocate=true",
    "cache_offload": "gpu --set engine.type=vllm --set engine.kv_offload_gib=1",
}
"""Arguments of `hillclimb accept` for paths that are no target of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentalFeature:
    """A setting of a spec that selects an experimental path, and what to set instead."""

    path: ExperimentalPath
    setting: str
    instead: str
    subject: str | None = None
    """The address that the setting names; None where the spec does not say it."""

    @property
    def remedy(self) -> str:
        """The ways to have the spec accepted."""
        return f"set experimental to true to try it,{proof_of(self.path)} or {self.instead}"


def proof_of(path: str) -> str:
    """Return the command that accepts a path, within a list of remedies; empty if none does."""
    if path not in ACCEPTABLE:
        return ""
    return f" prove it here once with `hillclimb accept {COMMANDS.get(path, path)}`,"


def refused_features(
    spec: RunSections, accepted: Iterable[AcceptedPath] = ()
) -> tuple[ExperimentalFeature, ...]:
    """Return the features that the spec uses although neither its flag nor evidence allows it.

    `accepted` is evidence beside that of the spec.
    """
    if spec.experimental:
        return ()
    features = tuple(experimental_features(spec))
    if not features:
        # Most specs: the service need not look for evidence.
        return ()
    evidence = (*spec.accepted, *accepted)
    return tuple(
        feature for feature in features if not accepted_for(evidence, feature.path, feature.subject)
    )


def experimental_features(spec: RunSections) -> Iterator[ExperimentalFeature]:
    """Yield each experimental feature that the spec uses."""
    engine = spec.engine
    if engine.tensor_parallel_size > 1:
        yield ExperimentalFeature(
            path="tensor_parallel",
            setting="engine.tensor_parallel_size above 1",
            instead="set the size to 1",
        )
    if engine.kv_cache_dtype != "auto":
        yield ExperimentalFeature(
            path="fp8_cache",
            setting=f"engine.kv_cache_dtype {engine.kv_cache_dtype}",
            instead="set it to auto",
        )
    if engine.kv_offload_gib:
        yield ExperimentalFeature(
            path="cache_offload",
            setting="engine.kv_offload_gib above 0",
            instead="leave it out",
        )
    if engine.weight_transport == "nccl":
        yield ExperimentalFeature(
            path="nccl", setting="engine.weight_transport nccl on GPUs", instead="set it to auto"
        )
    if spec.placement.colocate:
        yield ExperimentalFeature(
            path="colocate",
            setting="placement.colocate",
            instead="leave it out, and give engines and ranks GPUs of their own",
        )
    if engine.weight_transport == "ipc":
        yield ExperimentalFeature(
            path="ipc", setting="engine.weight_transport ipc on GPUs", instead="set it to auto"
        )
    if spec.tracking.wandb.mode == "online":
        yield ExperimentalFeature(
            path="wandb",
            setting="tracking.wandb.mode online",
            instead="set the mode to offline and send the files with `wandb sync`",
        )
    yield from _beyond_the_machine(spec)


def _beyond_the_machine(spec: RunSections) -> Iterator[ExperimentalFeature]:
    environment, teacher = spec.environment, spec.validation.teacher
    fleet = environment.fleet.base_url
    if _is_away(fleet):
        yield ExperimentalFeature(
            path="fleet",
            setting="environment.fleet.base_url outside the runner's machine",
            instead="point it to a server there (`hillclimb fleet serve` starts one)",
            subject=fleet,
        )
    if any(_is_away(each.url) for each in environment.openenv.values()):
        yield ExperimentalFeature(
            path="openenv",
            setting="environment.openenv with a server outside the runner's machine",
            instead="point it to a server there",
        )
    if teacher is not None and _is_away(teacher.base_url):
        yield ExperimentalFeature(
            path="teacher",
            setting="validation.teacher.base_url outside the runner's machine",
            instead="point it to a server there",
        )
    tinker = spec.backend.tinker_server
    if tinker is not None and _is_away(tinker.base_url):
        yield ExperimentalFeature(
            path="tinker",
            setting="backend.tinker.base_url outside the runner's machine",
            instead="point it to a server there (`hillclimb tinker serve` starts one)",
            subject=tinker.base_url,
        )


def _is_away(url: str | None) -> bool:
    return url is not None and not is_loopback(url)
