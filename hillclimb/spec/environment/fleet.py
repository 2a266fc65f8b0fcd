"""The section `environment.fleet`: where the platform is, and how its instances are held."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainer.contract.section import Seconds, Section

DEFAULT_BASE_URL = "https://orchestrator.fleetai.com"
MAX_OUTPUT_CHARS = 10_000
"""As Fleet's own wrapper cuts."""
IMAGE_MODALITIES = ("computer_use", "browser_use")


class FleetSpec(Section):
    """The platform of the provider `fleet`. The key comes from `FLEET_API_KEY` of the runner."""

    base_url: (
        Annotated[str, Field(pattern=r"^https?://[^/?#\s@]+(/[^?#\s]*)?$", max_length=2048)] | None
    ) = None
    """Where the platform is; null: `FLEET_BASE_URL` of the runner's environment, else Fleet's own.
    Anything but a server on the runner's machine needs `experimental: true`, and must be one of
    these two: the runner's key goes nowhere else."""
    region: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")] | None = None
    """Region of instances and verifiers; null: the platform's choice."""
    ttl_s: Annotated[int, Field(ge=10, le=86_400)] | None = None
    """Life of an instance (seconds), longer than a rollout may take; null: a quarter and a minute
    more than that."""
    heartbeat_interval_s: Annotated[int, Field(ge=3, le=3600)] = 60
    """The platform ends an instance that was silent for so long (seconds); three times in it a
    heartbeat is sent."""
    operation_timeout_s: Seconds | None = None
    """Longest single request (seconds), smaller than `call_timeout_s`, within which it is tried
    again; null: a third of it."""
    max_instances: Annotated[int, Field(ge=1, le=4096)] = 32
    """Instances of one environment at once, at the most, over all rollout workers, which share them
    out evenly; fewer after timeouts and where the account's limit is met (count)."""
    max_message_mib: Annotated[int, Field(ge=1, le=1024)] = 16
    """Largest answer accepted from the platform or an instance (MiB); a larger one is an infra
    error."""
    max_output_chars: Annotated[int, Field(ge=100, le=10_000_000)] = MAX_OUTPUT_CHARS
    """Longest answer of a tool that the model sees (characters); a longer one is cut, and says by
    how much."""
    partial_reward: bool = False
    """Give a task that was not done the share of its checks that passed, as its verifier prints
    them, which is never a pass: `eval.pass_threshold` has to be 1."""


def refuse_idle_workers(fleet: FleetSpec, num_workers: int) -> None:
    """Refuse fewer instances of an environment than rollout workers, each of which needs one.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if fleet.max_instances < num_workers:
        raise ValueError(
            f"environment.fleet.max_instances ({fleet.max_instances}) is shared by the rollout"
            f" workers ({num_workers}), and each needs one: raise it or lower"
            " placement.rollout_workers"
        )


def refuse_cheap_passes(fleet: FleetSpec, pass_threshold: float) -> None:
    """Refuse shares of a failed task's checks that would count as a pass.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if fleet.partial_reward and pass_threshold < 1.0:
        raise ValueError(
            f"environment.fleet.partial_reward gives failed tasks up to 1, and from"
            f" eval.pass_threshold ({pass_threshold:g}) on they would count as passed: set the"
            " threshold to 1 or partial_reward to false"
        )


def refuse_images(modality: str, what: str) -> None:
    """Refuse a modality in which the model looks at a screen.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if modality in IMAGE_MODALITIES:
        raise ValueError(
            f"{what} is of modality {modality}, for which the model has to see the screen, and this"
            " version gives models no images: keep to tasks of modality tool_use"
        )
