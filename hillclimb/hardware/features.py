"""Features of clouds, by which ineligible candidates are explained at submission.

Source: skypilot 0.14.1, `_CLOUD_UNSUPPORTED_FEATURES` and `_unsupported_features_for_resources` in
sky/clouds/{lambda_cloud,runpod,vast,primeintellect,nebius,aws,gcp,kubernetes,slurm}.py; whether
disk sizes and spot reach a cloud at all, in sky/templates/*-ray.yml.j2 and sky/provision/. Verified
with the running package: Lambda, RunPod, Vast, Prime Intellect and Slurm's rows of autodown and
multi-node, and Slurm's autodown at work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hillclimb.spec.backend.skypilot import CandidateSpec, SkyPilotSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudFeatures:
    """Features of a cloud in SkyPilot; None if it depends on the operator's cluster."""

    multi_node: bool = True
    autodown: bool = True
    """Terminating an idle cluster by itself; without it only our reaper does."""
    spot: bool | None = True
    image: bool | None = True
    """Running in a Docker image."""
    custom_disk: bool = True
    """Disks of the requested size; without it a machine has a fixed disk."""


FEATURES: dict[str, CloudFeatures] = {
    "lambda": CloudFeatures(spot=False, custom_disk=False),
    "runpod": CloudFeatures(multi_node=False),
    "vast": CloudFeatures(multi_node=False),
    "primeintellect": CloudFeatures(multi_node=False, autodown=False, spot=False, image=False),
    "nebius": CloudFeatures(),
    "aws": CloudFeatures(),
    "gcp": CloudFeatures(),
    "kubernetes": CloudFeatures(spot=None),
    "slurm": CloudFeatures(spot=False, image=None, custom_disk=False),
}
"""Prime Intellect's spot: SkyPilot accepts it but requests an ordinary machine (its request does
not mention spot). Kubernetes: spot where nodes have a known label. Slurm: images where the Pyxis
plugin is installed."""


def why_ineligible(candidate: CandidateSpec, spec: SkyPilotSpec) -> str | None:
    """Return which feature required by the spec this candidate's cloud lacks; None if none."""
    has, cloud = FEATURES[candidate.cloud], candidate.cloud
    if spec.num_nodes > 1 and not has.multi_node:
        return (
            f"{cloud} supports no clusters of several nodes, and num_nodes is {spec.num_nodes}: use"
            " another cloud, or one node with more GPUs"
        )
    if candidate.use_spot and has.spot is False:
        return f"{cloud} has no spot machines: set use_spot to false"
    if candidate.image is not None and has.image is False:
        return f"{cloud} runs no Docker images: leave image out, and set trainer.type to wheel"
    if candidate.disk_gb is not None and not has.custom_disk:
        return f"a machine of {cloud} has a fixed disk: leave disk_gb out"
    return None


def has_autodown(candidates: Iterable[CandidateSpec]) -> bool:
    """Tell whether the clouds terminate an idle cluster of these candidates.

    SkyPilot has one setting for all candidates (`sky/execution.py`: "All resources must have the
    same autostop config"), and with it would skip a cloud without autodown: so one such cloud turns
    it off for all.
    """
    return all(FEATURES[each.cloud].autodown for each in candidates)


def autodown_warning(candidates: Iterable[CandidateSpec], idle_minutes: int) -> str | None:
    """Return a warning about clouds without autodown among the candidates; None if all have it."""
    having: list[CandidateSpec] = []
    lacking: list[CandidateSpec] = []
    for each in candidates:
        (having if FEATURES[each.cloud].autodown else lacking).append(each)
    if not lacking:
        return None
    clouds = " and ".join(dict.fromkeys(each.cloud for each in lacking))
    warning = f"{clouds} does not terminate idle clusters by itself"
    if having:
        others = ", ".join(dict.fromkeys(each.label for each in having))
        warning += (
            ", and SkyPilot has one setting for all candidates: neither do "
            f"{others}. Without {clouds} in the list they terminate after {idle_minutes} idle"
            " minutes (backend.skypilot.idle_minutes)"
        )
    return f"{warning}. This service terminates every cluster; while it is down, nobody does."


def eligible(
    candidates: Iterable[CandidateSpec], spec: SkyPilotSpec
) -> tuple[tuple[CandidateSpec, ...], tuple[str, ...]]:
    """Return the candidates whose cloud has all required features, and a sentence per other one."""
    matches: list[CandidateSpec] = []
    sentences: list[str] = []
    for candidate in candidates:
        reason = why_ineligible(candidate, spec)
        if reason is None:
            matches.append(candidate)
        else:
            sentences.append(f"{candidate.label}: {reason}.")
    return tuple(matches), tuple(sentences)
