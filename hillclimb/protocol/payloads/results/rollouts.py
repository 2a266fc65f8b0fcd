"""Payloads of rollouts: outcomes in lists, one rollout in full."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.protocol.payloads.base import Payload

TokenState: TypeAlias = Literal["learned", "not_learned", "left_out", "not_stored"]


class OutcomePayload(Payload):
    """The outcome of one rollout."""

    object: Literal["trajectory"] = "trajectory"
    run_id: str
    rollout_id: str
    attempt: int
    step: int
    split: str
    decoding: str
    """`train`, `probe`, or the decoding of an evaluation."""
    task_key: str
    env_key: str
    template: str
    held_out_template: bool
    difficulty: int | None
    """1 to 3; null: unknown."""
    modality: str | None
    sample_index: int
    status: OutcomeStatus
    score: float | None
    reason: str | None
    """Code of the reason for a missing grade."""
    detail: str | None
    """The same reason in words, such as a server's answer."""
    verifier_execution_id: str | None
    """The platform's name of the verifier's execution."""
    stop_reason: StopReason
    num_turns: int
    num_tool_calls: int
    num_tool_errors: int
    tool_errors: dict[str, int] | None
    """Tool errors by kind; null where they were not counted."""
    patterns: list[str] | None
    """Failure patterns that it shows; null where nobody looked."""
    patterns_version: int | None
    num_repeated_calls: int
    num_tokens: int
    """Tokens sampled by the policy."""
    num_thinking_tokens: int | None
    """Those of them inside thoughts; null where they were not counted."""
    first_weight_version: int | None
    """Version of the weights that sampled the first token."""
    last_weight_version: int | None
    num_infra_retries: int
    duration_s: float
    """From the first try to the end (seconds)."""
    reset_s: float | None
    """Part of the duration in which the environment was reset."""
    call_s: float | None
    """The same for tool calls."""
    verification_s: float | None
    """The same for verifiers."""
    trajectory_line: int
    """Zero-based line in the file of trajectories."""
    passed: bool | None
    """Null without a grade."""
    cause: str | None
    """Cause of the failure of a graded rollout."""


class RolloutPayload(OutcomePayload):
    """One rollout of a list."""

    trajectory: str
    """Key of the file of trajectories, relative to the attempt."""


class RolloutList(Payload):
    """One page of rollouts, newest step first."""

    object: Literal["list"] = "list"
    data: list[RolloutPayload]
    has_more: bool
    next_cursor: str | None


class StoredTask(Payload):
    """The task of a stored trajectory."""

    model_config = ConfigDict(extra="allow")

    key: str
    env_key: str
    prompt: str
    env_variables: dict[str, str]


class StoredTurn(Payload):
    """One model turn and the environment's response, as text."""

    model_config = ConfigDict(extra="allow")

    response: str
    tool_name: str | None
    tool_arguments: dict[str, Any] | None
    observation: str | None
    is_error: bool
    call_index: int = 0
    """Position among the calls of one model turn; later ones have an empty `response`."""


class StoredTurnTokens(Payload):
    """Numbers of tokens that one model turn sampled."""

    num_tokens: int
    num_thinking_tokens: int
    """Those of them inside thoughts, tags included."""


class StoredOutcome(Payload):
    """The outcome as the trainer wrote it: `hillclimb.protocol.outcomes.Outcome`."""

    model_config = ConfigDict(extra="allow")

    status: OutcomeStatus
    score: float | None = None


class StoredConversation(Payload):
    """The parts of a stored trajectory that analysis reads: no tokens."""

    task: StoredTask
    stop_reason: StopReason
    outcome: StoredOutcome
    turns: list[StoredTurn]
    turn_tokens: list[StoredTurnTokens] = Field(default_factory=list)
    """One for each model turn; `turns` has one for each call. Empty in files of before."""


class StoredTrajectory(StoredConversation):
    """A trajectory as the trainer wrote it, further fields included."""

    model_config = ConfigDict(extra="allow")

    token_ids: list[int]
    action_mask: list[int]
    """1 where the policy sampled the token."""
    logprobs: list[float]
    """One for each sampled token."""
    weight_versions: list[int]
    """One for each sampled token."""


class StoredTokenValues(Payload):
    """The learner's values of one rollout's tokens: a line of `token-values/NAME.jsonl.gz`.

    Both arrays are base64 of little-endian float16, one number per sampled token, in their order.
    """

    rollout_id: str
    state: Literal["learned", "not_learned", "left_out"]
    """`not_learned`: the step took no gradient from it; `left_out`: it did, and the file of the
    step was full."""
    version: int | None = None
    """Version of the weights that the step began with."""
    num_updates: int | None = None
    """Updates that the step had taken when it computed the log-probs (count)."""
    advantage: float | None = None
    gaps: str | None = None
    """Log-prob of the learner less that of the engine (nats)."""
    entropies: str | None = None
    """Entropy of the learner's distribution (nats); null where a server has the learner."""


class StoredSpan(Payload):
    """One part of a rollout with its time."""

    kind: str
    """`queue` (wait for an environment), `sample` (a turn of the policy), `reset`, `call`,
    `verification`."""
    began_s: float
    """Since the rollout began (seconds)."""
    seconds: float
    failed: bool = False
    """It raised an error, or a deadline cut it off."""
    label: str = ""
    """Name of the tool of a call."""


class StoredTimes(Payload):
    """The times of a rollout as the trainer wrote them: a line of `times/NAME.jsonl.gz`."""

    rollout_id: str
    worker: int
    """Number of the rollout worker."""
    engine: int
    """Number of the engine that sampled its last try."""
    began_at: float
    """When it began (seconds since the epoch)."""
    spans: list[StoredSpan]


class RolloutWithTrajectory(OutcomePayload):
    """One rollout in full."""

    file: str
    """Key of the file of trajectories, relative to the attempt."""
    trajectory: StoredTrajectory


class TokenPayload(Payload):
    """One token of a trajectory; figures are null for a token that the policy did not draw."""

    position: int
    """From 0, over the whole trajectory."""
    token_id: int
    text: str | None
    """Null: its bytes are a part of a character, or texts of tokens were not stored."""
    bytes_hex: str | None
    """Its bytes where they are a part of a character."""
    turn: int
    """Turn of the model, from 1, with the environment's answer to it; 0: the prompt."""
    is_drawn: bool
    """The policy drew it: these tokens, and only these, enter the loss."""
    engine_logprob: float | None
    """Log-prob of the engine that drew it, at the sampling temperature (nats)."""
    learner_logprob: float | None
    """Log-prob of the learner (nats); null where it has none."""
    gap: float | None
    """Log-prob of the learner less that of the engine (nats), with three digits."""
    entropy: float | None
    """Entropy of the learner's distribution (nats)."""
    weight_version: int | None
    """Version of the weights that drew it."""


class TokenTurn(Payload):
    """The tokens of one turn."""

    turn: int
    """From 1; 0: the prompt."""
    start: int
    """Position of its first token."""
    num_tokens: int
    num_drawn: int
    """Those of them that the policy drew."""
    mean_abs_gap: float | None
    """Mean size of the gaps (nats)."""
    max_abs_gap: float | None
    mean_entropy: float | None
    """Over the drawn tokens (nats)."""
    weight_versions: list[int]
    """Versions that drew tokens of it."""


class TokenLearner(Payload):
    """The learner's part in a rollout, or the reason why it has none."""

    state: TokenState
    """`not_learned`: no gradient came from the rollout; `left_out`: the file of the step was full;
    `not_stored`: there is no file."""
    sentence: str
    """The same in words, with the reason."""
    version: int | None = None
    """Version of the weights that the step began with."""
    num_updates: int | None = None
    """Updates that the step had taken when it computed the log-probs; the entropies are of the
    update that learned from the rollout."""
    advantage: float | None = None


class TokenPage(Payload):
    """One page of a rollout's tokens, with figures over all of them."""

    object: Literal["tokens"] = "tokens"
    run_id: str
    rollout_id: str
    step: int
    num_tokens: int
    """Of the whole trajectory."""
    has_texts: bool
    """False where the trainer stored no texts of tokens, as it did not do before."""
    learner: TokenLearner
    turns: list[TokenTurn]
    largest_gaps: list[TokenPayload]
    """The 20 tokens about which engine and learner disagree most, that one first."""
    data: list[TokenPayload]
    next_start: int | None
    """`start` of the next page; null on the last one."""
