"""The section `placement`: processes of the trainer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hillclimb.spec.section import Section


class PlacementSpec(Section):
    """Processes of the trainer's workers: learner ranks, engines and rollout workers."""

    type: Literal["auto", "ray", "inline"] = "auto"
    """`ray`: separate processes, on a local Ray or on the cluster that `RAY_ADDRESS` or SkyPilot's
    variables name. `inline`: all in the trainer's process, one of each. `auto`: Ray if it is
    installed, else inline."""
    learner_ranks: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes that shard the policy and its optimizer (FSDP2), each with a GPU if there are any.
    """
    rollout_workers: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes that run rollouts against environments."""
