"""Queue classes: a run waits for a slot of a runner, or for a cluster of its own."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import ColumnElement, literal

from api.runs.status import WAITING
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
    return Run.queue_class == queue_class.value


def is_waiting() -> ColumnElement[bool]:
    """A condition on `Run`: it waits for its next attempt.

    The statuses stand in the statement itself: under a parameter, a plan for any value would not
    use the index of waiting runs.
    """
    return Run.status.in_([literal(each.value, literal_execute=True) for each in sorted(WAITING)])
