"""Accepted paths: experimental paths that `hillclimb accept` has seen work on an installation.

The service stores the evidence and writes its part that matters into each spec, where admission,
plan and trainer read it. Evidence covers one thing (a kind of GPU, an address) and the versions
under which it was seen; with other versions it is void.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Literal, get_args

from pydantic import Field

from hillclimb.spec.section import Section

GpuSetting = Literal["tensor_parallel", "nccl", "ipc", "fp8_cache", "cache_offload", "colocate"]
"""Paths that a setting selects on a GPU."""
AcceptablePath = Literal["gpu", "cluster", "fleet", "tinker", "wandb"] | GpuSetting
"""The experimental paths that evidence can accept."""
ExperimentalPath = AcceptablePath | Literal["openenv", "teacher"]
"""Every path of the trainer that a spec can use only as an experiment."""
GPU_SETTINGS: tuple[GpuSetting, ...] = get_args(GpuSetting)
ACCEPTABLE: tuple[str, ...] = ("gpu", "cluster", "fleet", "tinker", "wandb", *GPU_SETTINGS)
_ON_GPUS = ("hillclimb", "torch", "cuda", "driver", "vllm")
VERSIONS_THAT_MATTER: Mapping[AcceptablePath, tuple[str, ...]] = {
    "gpu": _ON_GPUS,
    "cluster": ("hillclimb", "torch", "ray", "skypilot"),
    **dict.fromkeys(GPU_SETTINGS, _ON_GPUS),
    "fleet": ("hillclimb",),
    "tinker": ("hillclimb", "tinker"),
    "wandb": ("hillclimb", "wandb"),
}
"""Versions whose change makes the evidence of a path void."""
Version = Annotated[str, Field(min_length=1, max_length=200)]
Versions = Annotated[
    dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")], Version], Field(max_length=32)
]


class AcceptedPath(Section):
    """A path that the service has evidence for; the service writes it, and replaces it."""

    path: AcceptablePath
    """The path."""
    subject: Annotated[str, Field(max_length=300)] = ""
    """The GPU, machines or address that the evidence is about; empty: any."""
    versions: Versions = Field(default_factory=dict)
    """The versions under which the path was seen to work."""
    evidence: Annotated[str, Field(max_length=64)] = ""
    """Id of the evidence (`hillclimb accept show`)."""


def accepted_for(
    accepted: Iterable[AcceptedPath], path: str, subject: str | None
) -> tuple[AcceptedPath, ...]:
    """Return those that cover the path; `subject` None: what it will be is not known yet."""
    return tuple(
        each
        for each in accepted
        if each.path == path and (subject is None or _covers(each, subject))
    )


def why_void(
    path: AcceptablePath, versions: Mapping[str, str], present: Mapping[str, str]
) -> str | None:
    """Return the first change of a version that matters to a path; see `first_change`."""
    return first_change(VERSIONS_THAT_MATTER[path], versions, present)


def first_change(
    names: Iterable[str], versions: Mapping[str, str], present: Mapping[str, str]
) -> str | None:
    """Return the first version that differs from evidence, as a clause; None if none does.

    `names` are the versions that matter, `versions` those of the evidence, `present` those that
    the caller knows: others may be as then.
    """
    for name in names:
        now, then = present.get(name), versions.get(name)
        if now is not None and _compared(name, now) != _compared(name, then or ""):
            return f"{name} was {then} and is {now}" if then else f"{name} {now} was not part of it"
    return None


def _compared(name: str, version: str) -> str:
    """Return the part of a version that matters: of a driver its branch, 550 of 550.54.15."""
    return version.partition(".")[0] if name == "driver" else version


def _covers(accepted: AcceptedPath, subject: str) -> bool:
    own = accepted.subject
    if not own:
        return True
    if accepted.path in ("gpu", "tensor_parallel", "nccl", "ipc"):
        return _words(subject) <= _words(own)
    if accepted.path == "cluster":
        return subject == own or subject.startswith(f"{own}/")
    return subject.rstrip("/") == own.rstrip("/")


def _words(name: str) -> frozenset[str]:
    """Return the words of a GPU's name, also two in a row as one: a catalog has `RTX4090`."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    pairs = (first + second for first, second in pairwise(words))
    return frozenset([*words, *pairs])
