"""Queue classes: a run waits for a slot of a runner, or for a cluster of its own."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import ColumnElement

from api.tables import Run
from hillclimb.spec.sections import RUNNER_ONLY_KINDS

CLUSTER_BACKENDS = ("skypilot",)


class QueueClass(StrEnum):
    """Runs of one class wait behind each other, never behind those of the other class."""

    RUNNER = "runner"
    CLUSTER = "cluster"


def queue_class_of(run: Run) -> QueueClass:
    """Return the queue class of a run; a preview waits for a runner on every backend."""
    if run.spec["kind"] in RUNNER_ONLY_KINDS:
        return QueueClass.RUNNER
    rents = run.spec["backend"]["type"] in CLUSTER_BACKENDS
    return QueueClass.CLUSTER if rents else QueueClass.RUNNER


def has_queue_class(queue_class: QueueClass) -> ColumnElement[bool]:
    """The same as a condition on `Run`."""
    backend: ColumnElement[str] = Run.spec["backend"]["type"].astext
    kind: ColumnElement[str] = Run.spec["kind"].astext
    on_cluster = backend.in_(CLUSTER_BACKENDS) & kind.not_in(RUNNER_ONLY_KINDS)
    return on_cluster if queue_class is QueueClass.CLUSTER else ~on_cluster
