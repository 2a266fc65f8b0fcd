"""The `tracking` section: experiment trackers that get the figures of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainer.contract.section import Section


class WandbSpec(Section):
    """Weights & Biases: one run per attempt, `RUN-attempt-N`, linked by group and config."""

    mode: Literal["disabled", "offline", "online"] = "disabled"
    """`offline`: files under the attempt's directory, for `wandb sync`. `online`: sent as they
    come; the key is `WANDB_API_KEY` in the environment of the trainer, never in a spec."""
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] = "hillclimb"
    """The W&B project."""
    entity: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] | None = None
    """The W&B team or user; null is the key's own."""
    group: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """What the run's attempts are grouped under; null is the run's id."""
    tags: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)], ...], Field(max_length=32)
    ] = ()
    """Tags of the W&B runs."""


class TrackingSpec(Section):
    """Where else the figures of the run go; a tracker that fails never hurts the run."""

    wandb: WandbSpec = WandbSpec()
    """Weights & Biases."""
