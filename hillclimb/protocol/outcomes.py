"""Outcomes of rollouts. All percentages are computed from one `OutcomeRow` per rollout."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

DETAIL_LIMIT = 500
"""Longest cause in words (characters)."""

Detail: TypeAlias = Annotated[str, Field(max_length=DETAIL_LIMIT)]
ExecutionId: TypeAlias = Annotated[str, Field(max_length=200)]


class StopReason(StrEnum):
    """Reason for which a rollout stopped: a closed list."""

    DONE = "done"
    """The policy declared itself done."""
    ENV_ENDED = "env_ended"
    """A tool ended the episode."""
    MAX_TURNS = "max_turns"
    """The turn limit of the environment."""
    MAX_GENERATE_LENGTH = "max_generate_length"
    """One turn used up its token limit without finishing."""
    MAX_INPUT_LENGTH = "max_input_length"
    """The conversation no longer fits the model's input limit."""
    POLICY_DEADLINE = "policy_deadline"
    """The policy's own slowness used up the trajectory's time."""
    INFRA_ERROR = "infra_error"
    """The environment or a service failed."""
    NOT_STARTED = "not_started"
    """The time budget was used up before the rollout started."""


class OutcomeStatus(StrEnum):
    """Grading status of a rollout."""

    GRADED = "graded"
    UNGRADED = "ungraded"
    """No grade, though the environment did not fail: the verifier returned none, or the rollout was
    never started."""
    INFRA_ERROR = "infra_error"
    """The environment or a service failed before the episode ended."""


class Outcome(BaseModel):
    """Outcome of one rollout: a score if and only if it is graded, else a reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: OutcomeStatus
    score: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    reason: str | None = None
    """A stable code."""
    detail: Detail | None = None
    """The cause in words, such as a server's answer."""
    verifier_execution_id: ExecutionId | None = None
    """The platform's name of the verifier's execution."""

    def model_post_init(self, context: object) -> None:
        """Refuse a score without a grade and a missing score without a reason."""
        if (self.status is OutcomeStatus.GRADED) != (self.score is not None):
            raise ValueError("an outcome has a score if and only if it is graded")
        if self.status is not OutcomeStatus.GRADED and not self.reason:
            raise ValueError("an outcome without a grade needs a reason")


class OutcomeRow(BaseModel):
    """One rollout as stored: its task, decoding and outcome.

    `sample_index` counts rollouts of the same task at the same step and decoding from 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollout_id: str
    """Unique in the run: made of attempt, step, split, decoding, task and sample."""
    split: Literal["train", "eval"]
    decoding: str
    """`train` for training rollouts, else the name of the eval's decoding."""
    task_key: str
    env_key: str
    template: str
    held_out_template: bool = False
    difficulty: int | None = None
    modality: str = "tool_use"
    sample_index: Annotated[int, Field(ge=0)]
    status: OutcomeStatus
    score: float | None = None
    reason: str | None = None
    """A stable code."""
    detail: Detail | None = None
    """The cause in words, such as a server's answer."""
    verifier_execution_id: ExecutionId | None = None
    """The platform's name of the verifier's execution; the last one's if there were several."""
    stop_reason: StopReason
    num_turns: int
    num_tool_calls: int
    num_tool_errors: int
    tool_errors: dict[str, int] = {}
    """Tool errors by kind (`hillclimb.stats.trajectories.errors.kinds`), those that the environment
    only wrote in its answer included."""
    patterns: tuple[str, ...] | None = None
    """Failure patterns that it shows (`hillclimb.stats.trajectories.patterns.registry`); null:
    nobody looked."""
    patterns_version: int | None = None
    """Version of the detectors."""
    num_repeated_calls: int
    """Tool calls equal, name and arguments, to the call just before."""
    num_tokens: int
    """Tokens sampled by the policy."""
    num_thinking_tokens: int = 0
    """Those of them inside thoughts, tags included."""
    first_weight_version: int | None = None
    """Version of the weights that sampled the first token; null if none was sampled."""
    last_weight_version: int | None = None
    """That of the last token: another one if the weights changed on the way."""
    num_infra_retries: int = 0
    duration_s: float
    """From the first try to the end, without time in queues (seconds)."""
    reset_s: float = 0.0
    """Part of the duration in which the environment was reset, over all tries."""
    call_s: float = 0.0
    """The same for tool calls."""
    verification_s: float = 0.0
    """The same for verifiers."""
    trajectory: str
    """Key of the JSONL.gz file in the blob store, relative to the attempt's prefix."""
    trajectory_line: int
    """Zero-based line in that file."""


Groups: TypeAlias = Sequence[Sequence[OutcomeRow]]
"""A step's rollouts by group, that is, of one prompt with a common baseline. A step may draw a task
more than once."""
