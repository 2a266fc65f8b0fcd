"""Rollouts of ours as rows of SkyRL's dumps.

An imported rollout has its row, which is exported as it came. Of the others the text is made again
from the stored turns, with ChatML's markers: the system message and the markers of another template
are not stored as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hillclimb.protocol.outcomes import StopReason
from hillclimb.protocol.payloads.results.rollouts import StoredTrajectory, StoredTurn
from hillclimb.stats.trajectories.skyrl.rollouts import LENGTH, SOURCE_LINE, TIMEOUT
from hillclimb.stats.trajectories.skyrl.rows import SkyRLRow, format_row
from hillclimb.stats.trajectories.skyrl.turns import END_OF_MESSAGE

ENV_CLASS = "fleet_task"
_STOP_REASONS = {
    StopReason.MAX_GENERATE_LENGTH: LENGTH,
    StopReason.MAX_INPUT_LENGTH: LENGTH,
    StopReason.POLICY_DEADLINE: TIMEOUT,
}


def source_line(trajectory: Mapping[str, Any]) -> str | None:
    """Return the line of the dump that a rollout was imported from; None for any other."""
    line = trajectory.get(SOURCE_LINE)
    return f"{line}\n" if isinstance(line, str) else None


def exported_line(stored: StoredTrajectory, *, score: float, max_turns: int) -> str:
    """Return a graded rollout as a line of a dump, with its line end.

    The score is on the last token, as SkyRL has it; `max_turns` is the environment's limit.
    """
    prompt_length = (stored.model_extra or {}).get("prompt_length", 0)
    num_tokens = max(1, len(stored.token_ids) - int(prompt_length))
    row = SkyRLRow(
        input_prompt=f"<|im_start|>user\n{stored.task.prompt}{END_OF_MESSAGE}\n"
        "<|im_start|>assistant\n",
        output_response=_response(stored.turns, stored.stop_reason),
        score=[0.0] * (num_tokens - 1) + [score],
        stop_reason=_STOP_REASONS.get(stored.stop_reason, "stop"),
        env_class=ENV_CLASS,
        env_extras={
            "task_key": stored.task.key,
            "data_source": stored.task.env_key,
            "max_turns": max_turns,
            "env_class": ENV_CLASS,
        },
        data_source=stored.task.env_key,
    )
    return format_row(row)


def _response(turns: Sequence[StoredTurn], stop_reason: StopReason) -> str:
    """Return the text after the prompt; the last turn's answers are left out, as SkyRL does."""
    groups: list[list[StoredTurn]] = []
    for turn in turns:
        if turn.call_index == 0 or not groups:
            groups.append([])
        groups[-1].append(turn)
    pieces = [group[0].response + END_OF_MESSAGE + _answer(group) for group in groups[:-1]]
    if groups:
        is_cut = stop_reason is StopReason.MAX_GENERATE_LENGTH
        pieces.append(groups[-1][0].response + ("" if is_cut else END_OF_MESSAGE))
    return "".join(pieces)


def _answer(turns: Iterable[StoredTurn]) -> str:
    blocks = [
        f"<tool_response>\n{turn.observation}\n</tool_response>"
        for turn in turns
        if turn.observation is not None
    ]
    text = "\n".join(blocks)
    return f"\n<|im_start|>user\n{text}{END_OF_MESSAGE}\n<|im_start|>assistant\n"
