"""Rows of SkyRL's dumps as rollouts of ours: the outcome, and the trajectory to store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from hillclimb.protocol.outcomes import Outcome, OutcomeRow, OutcomeStatus, StopReason
from hillclimb.protocol.payloads.results.rollouts import StoredTurn
from hillclimb.stats.trajectories.conversation import Conversation, ConversationTurn
from hillclimb.stats.trajectories.patterns.refusals import kind_of
from hillclimb.stats.trajectories.patterns.registry import PATTERNS_VERSION, detect_patterns
from hillclimb.stats.trajectories.skyrl.layout import file_stem
from hillclimb.stats.trajectories.skyrl.rows import SkyRLRow
from hillclimb.stats.trajectories.skyrl.turns import is_cut_off, prompt_text, response_turns
from hillclimb.stats.trajectories.stored import turns_of

SOURCE_LINE = "skyrl_line"
"""Field of a stored trajectory with the line of the dump, for an export of the same bytes."""
MODALITIES = ("tool_use", "computer_use", "browser_use")
INIT_FAILED, TIMEOUT, LENGTH = "env_init_failed", "timeout", "length"
"""Stop reasons of SkyRL's generator beside `stop`; the first two come with a reward of 0."""
_NO_GRADE = {
    INIT_FAILED: Outcome(
        status=OutcomeStatus.INFRA_ERROR,
        reason=INIT_FAILED,
        detail="SkyRL could not start the environment and dumped a reward of 0.",
    ),
    TIMEOUT: Outcome(
        status=OutcomeStatus.UNGRADED,
        reason="trajectory_timeout",
        detail="SkyRL's time limit of the rollout passed, and it dumped a reward of 0 instead of"
        " the rollout.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class DumpedRollout:
    """A row of a dump with its place among the rollouts of its evaluation."""

    row: SkyRLRow
    line: str
    """The row as it stands in the file, without the line end."""
    step: int
    decoding: str
    sample_index: int
    """Position among the rows of the same task and step."""

    @property
    def env_key(self) -> str:
        """Key of the environment: slashes become underscores, as in names of metrics."""
        return file_stem(self.row.data_source)

    @property
    def rollout_id(self) -> str:
        """Name of the rollout, as a trainer makes it."""
        place = f"1/{self.step}/eval/{self.decoding}"
        return f"{place}/{self.env_key}/{self.row.task_key}/{self.sample_index}"

    @cached_property
    def outcome(self) -> Outcome:
        """The reward as a grade; none where SkyRL dumped a zero for a rollout that it lost."""
        lost = _NO_GRADE.get(self.row.stop_reason or "")
        score = min(1.0, max(0.0, self.row.reward))
        return lost or Outcome(status=OutcomeStatus.GRADED, score=score)

    @cached_property
    def turns(self) -> tuple[StoredTurn, ...]:
        """Model turns with the environment's answers, one entry per call."""
        return () if self.outcome.score is None else response_turns(self.row.output_response)

    @cached_property
    def conversation(self) -> tuple[ConversationTurn, ...]:
        """The model turns."""
        return turns_of(self.turns, ())

    @cached_property
    def stop_reason(self) -> StopReason:
        """Ours that says most about the end, from SkyRL's and the last turn."""
        reason = self.row.stop_reason
        if reason == INIT_FAILED:
            return StopReason.INFRA_ERROR
        if reason == TIMEOUT:
            return StopReason.POLICY_DEADLINE
        if reason == LENGTH:
            is_cut = is_cut_off(self.row.output_response)
            return StopReason.MAX_GENERATE_LENGTH if is_cut else StopReason.MAX_INPUT_LENGTH
        if self.conversation and self.conversation[-1].says_done:
            return StopReason.DONE
        max_turns = self.row.env_extras.get("max_turns")
        is_limit = isinstance(max_turns, int) and len(self.conversation) >= max_turns
        return StopReason.MAX_TURNS if is_limit else StopReason.ENV_ENDED


def outcome_row(rollout: DumpedRollout, *, file: str, line: int, threshold: float) -> OutcomeRow:
    """Return the outcome; the trajectory is line `line` of `file`, and `threshold` the pass mark.

    Tokens are estimates: a dump counts those of the response, the environment's among them. They
    are divided by characters. Durations are not in a dump, and 0.
    """
    calls = [call for turn in rollout.conversation for call in turn.calls]
    errors = Counter(kind.value for call in calls if (kind := kind_of(call)) is not None)
    known = [(call.name, dict(call.arguments)) for call in calls if call.name is not None]
    extras = rollout.row.env_extras
    modality = extras.get("task_modality")
    return OutcomeRow(
        rollout_id=rollout.rollout_id,
        split="eval",
        decoding=rollout.decoding,
        task_key=rollout.row.task_key,
        env_key=rollout.env_key,
        template="",
        difficulty=_difficulty(extras.get("difficulty")),
        modality=modality if modality in MODALITIES else "tool_use",
        sample_index=rollout.sample_index,
        **rollout.outcome.model_dump(),
        stop_reason=rollout.stop_reason,
        num_turns=len(rollout.conversation),
        num_tool_calls=len(known),
        num_tool_errors=sum(errors.values()),
        tool_errors=dict(sorted(errors.items())),
        **_patterns(rollout, threshold),
        num_repeated_calls=sum(a == b for a, b in pairwise(known)),
        num_tokens=_tokens(rollout, sum(len(turn.response) for turn in rollout.turns)),
        num_thinking_tokens=_tokens(rollout, sum(len(t.thinking) for t in rollout.conversation)),
        duration_s=0.0,
        trajectory=file,
        trajectory_line=line,
    )


def stored_line(rollout: DumpedRollout) -> bytes:
    """Return the rollout as a line of a trajectory file, its row in the dump included."""
    record = {
        "rollout_id": rollout.rollout_id,
        "step": rollout.step,
        "split": "eval",
        "decoding": rollout.decoding,
        "task": {
            "key": rollout.row.task_key,
            "env_key": rollout.env_key,
            "template": "",
            "prompt": prompt_text(rollout.row.input_prompt),
            "env_variables": _env_variables(rollout.row.env_extras),
        },
        "sample_index": rollout.sample_index,
        "stop_reason": rollout.stop_reason.value,
        "outcome": rollout.outcome.model_dump(mode="json"),
        "turns": [turn.model_dump(mode="json") for turn in rollout.turns],
        "turn_tokens": [],
        "token_ids": [],
        "action_mask": [],
        "logprobs": [],
        "weight_versions": [],
        SOURCE_LINE: rollout.line,
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _patterns(rollout: DumpedRollout, threshold: float) -> dict[str, Any]:
    score = rollout.outcome.score
    if score is None:
        return {}
    conversation = Conversation(
        task_key=rollout.row.task_key,
        env_key=rollout.env_key,
        prompt=prompt_text(rollout.row.input_prompt),
        env_variables=_env_variables(rollout.row.env_extras),
        turns=rollout.conversation,
        stop_reason=rollout.stop_reason,
        score=score,
        passed=score >= threshold,
    )
    names = tuple(detect_patterns(conversation))
    return {"patterns": names, "patterns_version": PATTERNS_VERSION}


def _tokens(rollout: DumpedRollout, num_chars: int) -> int:
    """Return the share of these characters in the response, in tokens of the response."""
    score, total = rollout.row.score, len(rollout.row.output_response)
    if not isinstance(score, list) or not total:
        return 0
    return round(len(score) * min(1.0, num_chars / total))


def _difficulty(value: object) -> int | None:
    return value if isinstance(value, int) and 1 <= value <= 3 else None


def _env_variables(extras: Mapping[str, Any]) -> dict[str, str]:
    """Return the task's variables, which some versions dump as JSON in a string."""
    variables = extras.get("env_variables")
    if isinstance(variables, str):
        try:
            variables = json.loads(variables)
        except (ValueError, RecursionError):
            return {}
    if not isinstance(variables, Mapping):
        return {}
    return {name: value for name, value in variables.items() if isinstance(value, str)}
