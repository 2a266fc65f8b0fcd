"""Targets of `hillclimb accept`: their checks in order, and the paths that evidence lifts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from hillclimb.spec.preflight.accepted_paths import (
    GPU_SETTINGS,
    VERSIONS_THAT_MATTER,
    AcceptablePath,
)

Target: TypeAlias = Literal["gpu", "cluster", "fleet", "wandb", "slack", "tinker", "s3"]
TARGETS: tuple[Target, ...] = get_args(Target)
Place: TypeAlias = Literal["run", "service", "machine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """A target: its checks, where they run, and what evidence of it changes."""

    about: str
    checks: tuple[str, ...]
    """Names of the checks, in order; evidence has all of them."""
    place: Place
    """`run`: as a run through the normal path; `service`: by the service, with its own settings;
    `machine`: on the machine of the command, with the keys of its environment."""
    lifts: tuple[AcceptablePath, ...]
    """Experimental paths that evidence may accept; none: evidence is only recorded."""
    needs: str
    """Keys and settings."""
    cost: str
    """Bound of the cost of the whole ladder."""
    bounds: Mapping[str, str] = field(default_factory=dict)
    """By check, what bounds its cost; the others cost nothing."""


_RUN_CHECKS = ("plan", "submitted", "started", "machines", "rounds", "graded", "saved", "canary")
_RUN_COST = "two rounds of a few rollouts; rented machines by the minute, bounded by `--max-usd`"
_RUN_BOUNDS = {
    "started": "machines of one hour (`backend.skypilot.max_hours`)",
    "rounds": "the budget `--max-usd`, at which the run pauses",
}
FACTS: Mapping[Target, TargetFacts] = {
    "gpu": TargetFacts(
        about="two tiny rounds on a GPU, of your runner or rented",
        checks=_RUN_CHECKS,
        place="run",
        lifts=("gpu", *GPU_SETTINGS),
        needs="a runner with a GPU, or `--infra` and `--accelerators`",
        cost=_RUN_COST,
        bounds=_RUN_BOUNDS,
    ),
    "cluster": TargetFacts(
        about="two tiny rounds over two rented machines or more",
        checks=_RUN_CHECKS,
        place="run",
        lifts=("cluster", "gpu", *GPU_SETTINGS),
        needs="`--infra`, and a service that rents there",
        cost=_RUN_COST,
        bounds=_RUN_BOUNDS,
    ),
    "fleet": TargetFacts(
        about="an instance of the platform: created, reset, called, verified, deleted",
        checks=("key", "created", "reset", "called", "verified", "deleted"),
        place="machine",
        lifts=("fleet",),
        needs="FLEET_API_KEY, `--env`, `--task`",
        cost="one instance for at most ten minutes",
        bounds={"created": "one instance, which the platform ends after 600 s"},
    ),
    "wandb": TargetFacts(
        about="a tiny run at W&B: logged, read back, deleted",
        checks=("key", "logged", "read_back", "deleted"),
        place="machine",
        lifts=("wandb",),
        needs="WANDB_API_KEY",
        cost="nothing",
    ),
    "slack": TargetFacts(
        about="a message of the service's bot: posted, changed, deleted",
        checks=("key", "posted", "changed", "deleted"),
        place="service",
        lifts=(),
        needs="SLACK_BOT_TOKEN of the service, `--channel`",
        cost="nothing",
    ),
    "tinker": TargetFacts(
        about="one step of a tiny adapter on a Tinker server, and a sample from it",
        checks=("key", "adapter", "scored", "step", "moved", "sampled", "closed"),
        place="machine",
        lifts=("tinker",),
        needs="TINKER_API_KEY, `--model`",
        cost="one step and one sample of a few dozen tokens: below a cent",
        bounds={
            "scored": "16 tokens",
            "step": "one update on 16 tokens",
            "moved": "16 tokens",
            "sampled": "8 tokens",
        },
    ),
    "s3": TargetFacts(
        about="the service's blob store: written, listed, in parts, once only, by address, deleted",
        checks=("bucket", "put", "listed", "multipart", "conditional", "presigned", "deleted"),
        place="service",
        lifts=(),
        needs="HILLCLIMB_BLOBS_URL of the service, s3://…",
        cost="some twenty requests and 17 MiB for seconds: below a cent",
        bounds={"multipart": "17 MiB, deleted by the last check"},
    ),
}
OWN_VERSIONS: Mapping[Target, tuple[str, ...]] = {
    "slack": ("hillclimb",),
    "s3": ("hillclimb", "botocore"),
}
"""Versions that matter for the targets that lift no path."""


def versions_that_matter(target: Target) -> tuple[str, ...]:
    """Return the versions whose change makes the evidence of a target void."""
    lifts = FACTS[target].lifts
    return VERSIONS_THAT_MATTER[lifts[0]] if lifts else OWN_VERSIONS[target]
