"""What a run waits for: a slot of a runner, a runner at all, or a cluster of its own."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import ColumnElement

from api.runs.light import kind_of, light
from api.tables import Run
from trainer.contract.spec import LIGHT_KINDS

CLUSTER_BACKENDS = ("skypilot",)


class Lane(StrEnum):
    """Runs of one lane queue behind each other, not behind those of another."""

    RUNNER = "runner"
    LIGHT = "light"
    CLUSTER = "cluster"


def lane_of(run: Run) -> Lane:
    """Return the lane of a run. A preview needs no cluster: a runner does it beside its work."""
    if kind_of(run) in LIGHT_KINDS:
        return Lane.LIGHT
    return Lane.CLUSTER if run.spec["backend"]["type"] in CLUSTER_BACKENDS else Lane.RUNNER


def in_lane(lane: Lane) -> ColumnElement[bool]:
    """The same as a condition on `Run`."""
    backend: ColumnElement[str] = Run.spec["backend"]["type"].astext
    on_clusters = backend.in_(CLUSTER_BACKENDS)
    if lane is Lane.LIGHT:
        return light()
    return ~light() & (on_clusters if lane is Lane.CLUSTER else ~on_clusters)
