"""Outcome rows of rollouts, from which every percentage is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from hillclimb.protocol.outcomes import OutcomeRow, StopReason
from hillclimb.stats.trajectories.conversation import Conversation
from hillclimb.stats.trajectories.patterns.refusals import kind_of
from hillclimb.stats.trajectories.patterns.registry import PATTERNS_VERSION, detect_patterns
from hillclimb.stats.trajectories.stored import read_call, turns_of
from trainer.rollouts.operation import Kind
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.types import Turn


def outcome_rows(
    rollouts: Sequence[Rollout],
    request: RolloutRequest,
    *,
    trajectory_key: str,
    pass_threshold: float = 1.0,
) -> tuple[OutcomeRow, ...]:
    """Return one row per rollout; row i points at line i of the request's trajectory file.

    Rollouts that were started are searched for failure patterns; `pass_threshold` decides which of
    them failed.
    """
    return tuple(
        _row(rollout, request, trajectory_key, line).model_copy(
            update=_patterns(rollout, pass_threshold)
        )
        for line, rollout in enumerate(rollouts)
    )


def _patterns(rollout: Rollout, pass_threshold: float) -> dict[str, object]:
    trajectory = rollout.trajectory
    if trajectory.stop_reason is StopReason.NOT_STARTED:
        return {}
    score = trajectory.outcome.score
    conversation = Conversation(
        task_key=trajectory.task.key,
        env_key=trajectory.task.env_key,
        prompt=trajectory.task.prompt,
        env_variables=trajectory.task.env_variables,
        turns=turns_of(trajectory.turns, trajectory.turn_tokens),
        stop_reason=trajectory.stop_reason,
        score=score,
        passed=None if score is None else score >= pass_threshold,
    )
    names = tuple(detect_patterns(conversation))
    return {"patterns": names, "patterns_version": PATTERNS_VERSION}


def _row(rollout: Rollout, request: RolloutRequest, trajectory_key: str, line: int) -> OutcomeRow:
    trajectory = rollout.trajectory
    task, outcome = trajectory.task, trajectory.outcome
    calls = [turn for turn in trajectory.turns if turn.tool_name is not None]
    versions = [version for version in trajectory.weight_versions if version >= 0]
    return OutcomeRow(
        rollout_id=trajectory.rollout_id,
        split=request.split,
        decoding=request.decoding,
        task_key=task.key,
        env_key=task.env_key,
        template=task.template,
        held_out_template=task.held_out_template,
        difficulty=task.difficulty,
        modality=task.modality,
        sample_index=trajectory.sample_index,
        status=outcome.status,
        score=outcome.score,
        reason=outcome.reason,
        detail=outcome.detail,
        verifier_execution_id=outcome.verifier_execution_id,
        stop_reason=trajectory.stop_reason,
        num_turns=rollout.num_turns,
        num_tool_calls=len(calls),
        num_tool_errors=sum(turn.is_error for turn in calls),
        tool_errors=_tool_errors(trajectory.turns),
        num_repeated_calls=sum(
            (a.tool_name, a.tool_arguments) == (b.tool_name, b.tool_arguments)
            for a, b in pairwise(calls)
        ),
        num_tokens=sum(trajectory.action_mask),
        num_thinking_tokens=sum(turn.num_thinking_tokens for turn in trajectory.turn_tokens),
        first_weight_version=versions[0] if versions else None,
        last_weight_version=versions[-1] if versions else None,
        num_infra_retries=trajectory.num_infra_retries,
        duration_s=round(rollout.duration_s, 4),
        reset_s=_seconds(rollout, "reset"),
        call_s=_seconds(rollout, "call"),
        verification_s=_seconds(rollout, "verification"),
        trajectory=trajectory_key,
        trajectory_line=line,
    )


def _seconds(rollout: Rollout, kind: Kind) -> float:
    return round(sum(each.seconds for each in rollout.operations if each.kind == kind), 4)


def _tool_errors(turns: Sequence[Turn]) -> dict[str, int]:
    """Count the tool errors by kind, in the order of the kinds' names."""
    calls = [call for turn in turns if (call := read_call(turn)) is not None]
    kinds = Counter(kind.value for call in calls if (kind := kind_of(call)) is not None)
    return dict(sorted(kinds.items()))
