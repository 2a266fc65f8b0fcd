"""The states of runs and attempts, and the allowed transitions of runs."""

from __future__ import annotations

from hillclimb.protocol.payloads.statuses import AttemptState, DesiredState, RunStatus

__all__ = ["AttemptState", "DesiredState", "RunStatus"]


CLAIMED_STATES = (AttemptState.CLAIMED.value, AttemptState.RUNNING.value)
"""States of an attempt that occupies a slot of its runner."""

_S = RunStatus

TERMINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
"""Final statuses: no transition leaves them."""

WAITING = frozenset({_S.QUEUED, _S.RECOVERING})
"""Statuses in which the next attempt waits for a slot or a cluster."""

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


def may_follow(before: RunStatus, after: RunStatus) -> bool:
    """Return True when a run in `before` may become `after`."""
    return after in TRANSITIONS[before]
