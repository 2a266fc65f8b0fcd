"""The states of runs and attempts, which may follow which, and how long each may last."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    """Waits for a free slot of a live runner."""
    PROVISIONING = "provisioning"
    """An attempt is offered; no runner has claimed it yet."""
    STARTING = "starting"
    """A runner claimed the attempt; its trainer has sent nothing yet."""
    RUNNING = "running"
    """The trainer is at work."""
    RECOVERING = "recovering"
    """The attempt is gone; the next one waits for a free slot."""
    PAUSING = "pausing"
    """The trainer is checkpointing and leaving."""
    PAUSED = "paused"
    """Nothing runs; a resume goes on from the newest checkpoint."""
    FINALIZING = "finalizing"
    """The trainer finished; the end of its events is on its way."""
    CANCELLING = "cancelling"
    """A user cancelled; the trainer is checkpointing and leaving."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DesiredState(StrEnum):
    """What the user wants of the run, whatever it is doing."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """Where an attempt stands."""

    OFFERED = "offered"
    CLAIMED = "claimed"
    RUNNING = "running"
    ENDED = "ended"


_S = RunStatus

TERMINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
"""Absorbing: no transition leaves them."""

WAITING = frozenset({_S.QUEUED, _S.RECOVERING})
"""The next attempt waits for a slot."""

TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    _S.QUEUED: frozenset({_S.PROVISIONING, _S.PAUSED, _S.CANCELLED, _S.FAILED}),
    _S.PROVISIONING: frozenset(
        {_S.STARTING, _S.QUEUED, _S.RECOVERING, _S.PAUSED, _S.CANCELLED, _S.FAILED}
    ),
    _S.STARTING: frozenset(
        {_S.RUNNING, _S.RECOVERING, _S.PAUSING, _S.PAUSED, _S.FINALIZING, _S.CANCELLING}
        | {_S.CANCELLED, _S.FAILED}
    ),
    _S.RUNNING: frozenset(
        {_S.RECOVERING, _S.PAUSING, _S.PAUSED, _S.FINALIZING, _S.CANCELLING, _S.CANCELLED}
        | {_S.FAILED}
    ),
    _S.RECOVERING: frozenset({_S.PROVISIONING, _S.PAUSED, _S.CANCELLED, _S.FAILED}),
    _S.PAUSING: frozenset(
        {_S.PAUSED, _S.RECOVERING, _S.FINALIZING, _S.CANCELLING, _S.CANCELLED, _S.FAILED}
    ),
    _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED}),
    _S.FINALIZING: frozenset({_S.SUCCEEDED, _S.RECOVERING, _S.CANCELLED, _S.FAILED}),
    _S.CANCELLING: frozenset({_S.CANCELLED, _S.FINALIZING}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}

DEADLINES_S: dict[RunStatus, float | None] = {
    _S.QUEUED: None,
    _S.PROVISIONING: 60.0,
    _S.STARTING: 1800.0,
    _S.RUNNING: 1800.0,
    _S.RECOVERING: None,
    _S.PAUSING: 180.0,
    _S.PAUSED: None,
    _S.FINALIZING: 120.0,
    _S.CANCELLING: 180.0,
    _S.SUCCEEDED: None,
    _S.FAILED: None,
    _S.CANCELLED: None,
}
"""Seconds a status may last; `running` counts from the trainer's last event. Waiting for a runner
has no deadline: a run is not at fault for a fleet that is away. `starting` lasts until the
trainer's first event, after model (from a hub, perhaps), tasks, engines and ranks are loaded; a
trainer that dies meanwhile is reported at once by who holds it."""

LOOK_AGAIN_S = 5.0
"""A run under way is looked at this often, whatever happens to it."""

CLUSTER_PROVISIONING_S = 3600.0
"""Of a launch that is under way, until the first node is in: machines that boot, packages that are
installed; from each sign of progress anew. While nothing is under way the run only waits."""
CLUSTER_STARTING_S = 3600.0
"""From machines that are tested to the trainer's first event: a large model is fetched, and on the
way back from a lost cluster a checkpoint of a hundred gigabytes."""
CLUSTER_STOPPING_S = 900.0
"""Of a run on a cluster that pauses or is cancelled: a large model's checkpoint takes minutes to
get into the store; longer than the node gives its trainer (`HILLCLIMB_NODE_STOP_S`)."""
CLUSTER_DEADLINES_S: dict[RunStatus, float | None] = {
    _S.PROVISIONING: None,
    _S.STARTING: CLUSTER_STARTING_S,
    _S.PAUSING: CLUSTER_STOPPING_S,
    _S.CANCELLING: CLUSTER_STOPPING_S,
}
"""What differs for a run on a cluster of its own."""


def may_follow(before: RunStatus, after: RunStatus) -> bool:
    """Say whether a run in `before` may become `after`."""
    return after in TRANSITIONS[before]
