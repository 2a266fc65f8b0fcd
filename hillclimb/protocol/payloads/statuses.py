"""The states of runs, attempts and clusters, and the categories of end reasons."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """The status of a run."""

    QUEUED = "queued"
    """The run waits for a free slot of a runner, or for a cluster."""
    PROVISIONING = "provisioning"
    """An attempt is scheduled; no runner has claimed it yet."""
    STARTING = "starting"
    """A runner claimed the attempt; its trainer has sent nothing yet."""
    RUNNING = "running"
    """The trainer sends events."""
    RECOVERING = "recovering"
    """The attempt ended; the next one waits for a free slot."""
    PAUSING = "pausing"
    """The trainer saves a checkpoint and exits."""
    PAUSED = "paused"
    """No trainer runs; a resume continues from the newest checkpoint."""
    FINALIZING = "finalizing"
    """The trainer finished; its last events are still to arrive."""
    CANCELLING = "cancelling"
    """A user cancelled; the trainer saves a checkpoint and exits."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DesiredState(StrEnum):
    """The state that the user requested, whatever the run's status."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """The state of an attempt."""

    SCHEDULED = "scheduled"
    CLAIMED = "claimed"
    RUNNING = "running"
    ENDED = "ended"


class Category(StrEnum):
    """The party at fault for an end."""

    USER = "user"
    INFRA = "infra"
    CAPACITY = "capacity"
    INTERNAL = "internal"


class ClusterState(StrEnum):
    """The state of a cluster in our records; `terminated` absorbs."""

    PENDING = "pending"
    """No launch is known to be under way."""
    PROVISIONING = "provisioning"
    """A launch request is under way."""
    RUNNING = "running"
    TERMINATING = "terminating"
    """The service terminates it, and repeats that until its cloud reports nothing of it."""
    TERMINATED = "terminated"
