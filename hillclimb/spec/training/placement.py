"""The section `placement`: processes of the trainer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hillclimb.spec.section import Section
from hillclimb.spec.training.engine import EngineSpec
from hillclimb.spec.training.schedule import ScheduleSpec


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
    colocate: bool = False
    """Engines and ranks take turns on the same GPUs: an engine sleeps (`engine.sleep_level`) while
    its rank learns, and the rank's optimizer state is in the machine's memory while the engine
    samples. Needs `engine.weight_transport` ipc and a synchronous run
    (`schedule.max_staleness_steps` 0)."""


def refuse_unfit_for_turns(
    placement: PlacementSpec, engine: EngineSpec, schedule: ScheduleSpec
) -> None:
    """Refuse colocation where engines and learner cannot take turns.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if not placement.colocate:
        if engine.sleep_level != 1:
            raise ValueError(
                f"engine.sleep_level {engine.sleep_level} does nothing while no engine sleeps: set"
                " placement.colocate to true, or leave it out"
            )
        return
    if engine.weight_transport != "ipc":
        raise ValueError(
            f"placement.colocate puts an engine and a rank on each GPU, and"
            f" engine.weight_transport {engine.weight_transport} takes weights elsewhere: set it to"
            " ipc"
        )
    if schedule.max_staleness_steps:
        raise ValueError(
            "placement.colocate lets engines sleep while the learner trains, and"
            f" schedule.max_staleness_steps {schedule.max_staleness_steps} lets rollouts go on"
            " meanwhile: set it to 0, or leave colocate out"
        )
    if placement.type == "inline":
        raise ValueError("placement.colocate needs processes of its own: set placement.type to ray")
