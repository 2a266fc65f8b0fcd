"""Prerequisites of a spec that fresh cloud machines lack: model files, servers, interpreters.

Nodes of the operator's own cluster (Slurm, Kubernetes) may have them, and so may a container of the
user's choice.
"""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.hardware.estimate import SAMPLES
from hillclimb.spec.backend.clouds import OWN_NETWORKS
from hillclimb.spec.backend.skypilot import CandidateSpec, SkyPilotSpec
from hillclimb.spec.hosts import is_loopback
from hillclimb.spec.run import RunSpec
from hillclimb.spec.sections import RUNNER_ONLY_KINDS

DOWNLOADABLE = ("builtin:", "hf:", "s3://", "run:")
"""Prefixes of a `model.source` that any machine can load."""


def missing_prerequisite(spec: RunSpec, candidate: CandidateSpec) -> str | None:
    """Return which prerequisite such a machine lacks; None if none is known."""
    if not is_fresh(candidate) or spec.kind in RUNNER_ONLY_KINDS:
        return None
    for setting, url in _servers(spec):
        if is_loopback(url):
            return (
                f"{setting} is {url}, which on a fresh machine of {candidate.cloud} is that machine"
                " itself, without a server: use an address that it can reach"
            )
    source = spec.model.source
    if spec.kind in SAMPLES and not source.startswith(DOWNLOADABLE):
        return (
            f"model.source {source} is a path, and a fresh machine of {candidate.cloud} has no"
            " such files: use hf:ORG/NAME@REVISION or s3://BUCKET/PREFIX, or an image that has them"
        )
    return None


def prebuilt_warning(candidate: CandidateSpec, skypilot: SkyPilotSpec) -> str | None:
    """Return a warning about a prebuilt interpreter, which a fresh machine lacks; None if none."""
    if not is_fresh(candidate) or skypilot.trainer.type != "prebuilt":
        return None
    return (
        f"{candidate.label} must already have {skypilot.trainer.python}, which a fresh cloud"
        " machine lacks (backend.skypilot.trainer): the type wheel installs the trainer there"
    )


def is_fresh(candidate: CandidateSpec) -> bool:
    """Tell whether the machine is a cloud's standard one, without an image of the user."""
    return candidate.cloud not in OWN_NETWORKS and candidate.image is None


def _servers(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield the servers that the run will use, each with its setting."""
    environment, teacher = spec.environment, spec.validation.teacher
    if environment.fleet.base_url is not None:
        yield "environment.fleet.base_url", environment.fleet.base_url
    for key, server in environment.openenv.items():
        yield f"environment.openenv.{key}.url", server.url
    if spec.kind == "validate" and teacher is not None:
        yield "validation.teacher.base_url", teacher.base_url
