"""The section `environment.fleet`: the platform's address, and the lifetime of its instances."""

from __future__ import annotations

import sys
from typing import Annotated

from pydantic import Field

from hillclimb.spec.environment.prompt import PromptSpec
from hillclimb.spec.section import Seconds, Section

DEFAULT_BASE_URL = "https://orchestrator.fleetai.com"
MAX_OUTPUT_CHARS = 10_000
"""Limit at which Fleet's own wrapper truncates where its context tools are on."""
IMAGE_MODALITIES = ("computer_use", "browser_use")


class FleetSpec(Section):
    """The platform of the provider `fleet`; its key is the runner's variable `FLEET_API_KEY`."""

    base_url: (
        Annotated[str, Field(pattern=r"^https?://[^/?#\s@]+(/[^?#\s]*)?$", max_length=2048)] | None
    ) = None
    """Address of the platform; null: `FLEET_BASE_URL` of the runner's environment, else Fleet's
    own. Anything but a server on the runner's machine needs `experimental: true`, and must be one
    of these two: the runner's key is sent nowhere else."""
    region: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")] | None = None
    """Region of instances and verifiers; null: the platform's choice."""
    ttl_s: Annotated[int, Field(ge=10, le=86_400)] | None = None
    """Time to live of an instance (seconds), longer than a rollout may take; null: a quarter and a
    minute longer than that."""
    heartbeat_interval_s: Annotated[int, Field(ge=3, le=3600)] = 60
    """Time without a heartbeat after which the platform terminates an instance (seconds); three
    heartbeats are sent within it."""
    operation_timeout_s: Seconds | None = None
    """Deadline of a single request (seconds), smaller than `call_timeout_s`, within which it is
    retried; null: a third of that."""
    max_instances: Annotated[int, Field(ge=1, le=4096)] = 32
    """Concurrent instances of one environment (count), shared evenly by all rollout workers; fewer
    after timeouts and when the account's limit is reached."""
    max_message_mib: Annotated[int, Field(ge=1, le=1024)] = 16
    """Largest response accepted from the platform or an instance (MiB); a larger one is an infra
    error."""
    max_output_chars: Annotated[int, Field(ge=100, le=10_000_000)] | None = None
    """Longest tool result that the model sees (characters); a longer one is truncated, with a note
    of how much is missing. null: 10,000, and with `prompt.style: skyrl` no limit, as in SkyRL
    without its context tools."""
    partial_reward: bool = False
    """Score a failed task by the share of its checks that passed, as its verifier prints them. It
    never counts as a pass: `eval.pass_threshold` must be 1."""


def output_limit(fleet: FleetSpec, prompt: PromptSpec) -> int:
    """Return the longest tool result that the model sees (characters)."""
    if fleet.max_output_chars is not None:
        return fleet.max_output_chars
    return sys.maxsize if prompt.style == "skyrl" else MAX_OUTPUT_CHARS


def refuse_idle_workers(fleet: FleetSpec, num_workers: int) -> None:
    """Refuse fewer instances than rollout workers, each of which needs one.

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
    """Refuse a pass threshold that partial rewards of failed tasks could reach.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if fleet.partial_reward and pass_threshold < 1.0:
        raise ValueError(
            f"environment.fleet.partial_reward scores failed tasks up to 1, and those at or above"
            f" eval.pass_threshold ({pass_threshold:g}) would count as passed: set the threshold to"
            " 1 or partial_reward to false"
        )


def refuse_images(modality: str, what: str) -> None:
    """Refuse a modality that needs screenshots.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if modality in IMAGE_MODALITIES:
        raise ValueError(
            f"{what} is of modality {modality}, for which the model needs screenshots, and this"
            " version supports no images: use tasks of modality tool_use"
        )
