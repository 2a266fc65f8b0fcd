"""The placement section of a run spec: which processes share the work."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainer.contract.section import Section


class PlacementSpec(Section):
    """Where the workers of the trainer are: learner, engines and rollouts."""

    type: Literal["auto", "ray", "inline"] = "auto"
    """`ray`: processes of their own, on a local Ray or on the cluster that `RAY_ADDRESS` or
    SkyPilot's variables name. `inline`: all in the trainer's process, one of each. `auto`: Ray
    where it is installed, else inline."""
    learner_ranks: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes that share the policy and its optimizer (FSDP2), a GPU each where there are any."""
    rollout_workers: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes that talk to environments."""
