"""Skipped rollouts: ungraded rows for rollouts that were never started or never ended."""

from __future__ import annotations

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import Outcome, OutcomeStatus, StopReason
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.transcript import RolloutIdentity, Transcript


def rollout_id(attempt: int, request: RolloutRequest, task: Task, sample_index: int) -> str:
    """Return the name of a rollout, unique in its run."""
    place = f"{attempt}/{request.step}/{request.split}/{request.decoding}"
    return f"{place}/{task.key}/{sample_index}"


def skipped_rollout(
    task: Task, sample_index: int, request: RolloutRequest, *, attempt: int, why: str
) -> Rollout:
    """Return an ungraded rollout that was not started, or not ended, for the reason `why`."""
    identity = RolloutIdentity(
        rollout_id=rollout_id(attempt, request, task, sample_index),
        sample_index=sample_index,
        num_infra_retries=0,
    )
    outcome = Outcome(status=OutcomeStatus.UNGRADED, reason=why)
    return Rollout(
        trajectory=Transcript().trajectory(task, outcome, StopReason.NOT_STARTED, identity),
        num_turns=0,
        duration_s=0.0,
        infra_errors=(),
    )
