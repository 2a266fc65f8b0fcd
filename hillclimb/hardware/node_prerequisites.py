"""What a spec takes for granted of its machines, and a cloud's fresh ones do not have.

A cluster of the operator's own (Slurm, Kubernetes) may have an environment, a model's files or a
server on every node, and so may a container of the user's choice. A machine that a cloud gives
comes with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainer.contract.clusters.clouds import OWN_NETWORKS
from trainer.contract.clusters.estimate import SAMPLES
from trainer.contract.clusters.spec import CandidateSpec, SkyPilotSpec
from trainer.contract.hosts import is_loopback
from trainer.contract.spec import LIGHT_KINDS, RunSpec

BROUGHT = ("builtin:", "hf:", "s3://")
"""How a `model.source` begins that any machine can have."""


def why_not_there(spec: RunSpec, candidate: CandidateSpec) -> str | None:
    """Say what the run would look for in vain on such a machine; None where nothing is known."""
    if not is_fresh(candidate) or spec.kind in LIGHT_KINDS:
        return None
    for setting, url in _servers(spec):
        if is_loopback(url):
            return (
                f"{setting} is {url}, which on a fresh machine of {candidate.cloud} is that machine"
                " itself, and nothing serves there: give an address that it can reach"
            )
    source = spec.model.source
    if spec.kind in SAMPLES and not source.startswith(BROUGHT):
        return (
            f"model.source {source} is a path, and a fresh machine of {candidate.cloud} has no"
            " such files: take hf:ORG/NAME@REVISION or s3://BUCKET/PREFIX, or name an image that"
            " has them"
        )
    return None


def doubt_prebuilt(candidate: CandidateSpec, skypilot: SkyPilotSpec) -> str | None:
    """Warn of an interpreter that only the user can have put there, if anybody did."""
    if not is_fresh(candidate) or skypilot.trainer.type != "prebuilt":
        return None
    return (
        f"{candidate.label} must have {skypilot.trainer.python} already, which a cloud's machine"
        " has not by itself (backend.skypilot.trainer): the type wheel installs the trainer there"
    )


def is_fresh(candidate: CandidateSpec) -> bool:
    """Whether the machine is one that a cloud gives as it gives it to anybody."""
    return candidate.cloud not in OWN_NETWORKS and candidate.image is None


def _servers(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield what the run will ask, with the setting that names it."""
    environment, teacher = spec.environment, spec.validation.teacher
    if environment.fleet.base_url is not None:
        yield "environment.fleet.base_url", environment.fleet.base_url
    for key, server in environment.openenv.items():
        yield f"environment.openenv.{key}.url", server.url
    if spec.kind == "validate" and teacher is not None:
        yield "validation.teacher.base_url", teacher.base_url
