"""Trajectory files: the rollouts of one request, one JSON object per line, gzip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import JsonValue

from hillclimb.environment.task import Task
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.types import Turn

_LEVEL = 3
"""gzip level: most of the gain for a quarter of the time."""


def trajectories_name(request: RolloutRequest) -> str:
    """Return the file name, without extension, of a request's trajectories."""
    return f"step-{request.step:06d}-{request.split}-{request.decoding}"


def write_trajectories(path: Path, rollouts: Sequence[Rollout], request: RolloutRequest) -> None:
    """Write one line per rollout, in the order of `rollouts`; equal content gives equal bytes.

    `logprobs` and `weight_versions` list the drawn tokens only, in the order of the ones in
    `action_mask`; log-probs are rounded to 6 decimals.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(
        json.dumps(_record(rollout, request), separators=(",", ":"), ensure_ascii=False) + "\n"
        for rollout in rollouts
    )
    path.write_bytes(gzip.compress(lines.encode(errors="replace"), _LEVEL, mtime=0))


def read_trajectories(path: Path) -> list[dict[str, JsonValue]]:
    """Return the records of a trajectory file."""
    with gzip.open(path, "rt", encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


def _record(rollout: Rollout, request: RolloutRequest) -> dict[str, JsonValue]:
    trajectory = rollout.trajectory
    action_indices = [index for index, action in enumerate(trajectory.action_mask) if action]
    return {
        "rollout_id": trajectory.rollout_id,
        "step": request.step,
        "split": request.split,
        "decoding": request.decoding,
        "temperature": request.temperatures[trajectory.task.env_key],
        "task": _task(trajectory.task),
        "sample_index": trajectory.sample_index,
        "num_infra_retries": trajectory.num_infra_retries,
        "infra_errors": list(rollout.infra_errors),
        "stop_reason": trajectory.stop_reason.value,
        "outcome": trajectory.outcome.model_dump(mode="json"),
        "duration_s": round(rollout.duration_s, 4),
        "turns": [_turn(turn) for turn in trajectory.turns],
        "turn_tokens": [asdict(tokens) for tokens in trajectory.turn_tokens],
        "prompt_length": trajectory.prompt_length,
        "token_ids": list(trajectory.token_ids),
        "action_mask": [int(action) for action in trajectory.action_mask],
        "logprobs": [round(trajectory.logprobs[index], 6) for index in action_indices],
        "weight_versions": [trajectory.weight_versions[index] for index in action_indices],
    }


def _task(task: Task) -> dict[str, JsonValue]:
    return {
        "key": task.key,
        "env_key": task.env_key,
        "template": task.template,
        "held_out_template": task.held_out_template,
        "difficulty": task.difficulty,
        "modality": task.modality,
        "prompt": task.prompt,
        "env_variables": dict(task.env_variables),
    }


def _turn(turn: Turn) -> dict[str, JsonValue]:
    return {
        "response": turn.response,
        "tool_name": turn.tool_name,
        "tool_arguments": None if turn.tool_arguments is None else dict(turn.tool_arguments),
        "observation": turn.observation,
        "is_error": turn.is_error,
        "call_index": turn.call_index,
    }
