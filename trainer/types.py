"""Values of the trainer: sampling parameters, sample, turn, trajectory, group.

All are frozen; a later stage makes a new value instead of changing one in place.
Shape legend: T tokens of one trajectory, G rollouts of one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from hillclimb.environment.task import Task
from hillclimb.protocol.outcomes import Outcome, StopReason

Routes: TypeAlias = NDArray[np.unsignedinteger]
"""Experts that computed tokens, [tokens, layers of the model, experts of a token], in one or two
bytes each; 0 in layers without experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters. `temperature` 0 is greedy. `top_p` 1 leaves log-probs exact."""

    temperature: float
    max_new_tokens: int
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    """Seeds this request alone, so batching never changes the sampled tokens."""
    routes_from: int | None = None
    """Return the experts of the tokens from this position on; None: of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An engine's answer to one request: only new tokens, aligned with their log-probs."""

    token_ids: tuple[int, ...]
    """Includes the stop token when one was sampled."""
    logprobs: tuple[float, ...]
    """Natural-log probability of each token under the distribution it was sampled from
    (temperature applied): the behaviour policy."""
    stopped: bool
    """True when a stop token ended it, False when `max_new_tokens` did."""
    weight_versions: tuple[int, ...]
    """Version of the weights that sampled each token: an update may come between two of them."""
    routes: Routes | None = field(default=None, compare=False, repr=False)
    """Of the tokens from `routes_from` to the last but one: the last was drawn, not computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One model turn and the environment's answer, as text."""

    response: str
    tool_name: str | None
    tool_arguments: Mapping[str, JsonValue] | None
    observation: str | None
    is_error: bool = False
    call_index: int = 0
    """Position among the calls of one model turn; later ones carry an empty `response`."""


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """Numbers of tokens that one model turn sampled."""

    num_tokens: int
    num_thinking_tokens: int
    """Those of them inside thoughts, tags included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One rollout as the exact sequence of sampled tokens.

    Shapes: `token_ids`, `action_mask`, `logprobs`, `weight_versions` are all [T].
    `action_mask[t]` is True where the policy sampled the token; elsewhere (prompt, observations)
    `logprobs[t]` is 0.0 and `weight_versions[t]` is -1.
    """

    task: Task
    token_ids: tuple[int, ...]
    action_mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    weight_versions: tuple[int, ...]
    prompt_length: int
    turns: tuple[Turn, ...]
    stop_reason: StopReason
    outcome: Outcome
    rollout_id: str
    sample_index: int
    num_infra_retries: int = 0
    turn_tokens: tuple[TurnTokens, ...] = ()
    """One for each model turn; `turns` has one for each call."""
    routes: Routes | None = field(default=None, compare=False, repr=False)
    """Of all tokens but perhaps the last, as the engine computed each when it was new; None where
    none were asked for."""

    @property
    def reward(self) -> float | None:
        """The graded score, or None when there is none."""
        return self.outcome.score


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The rollouts of one prompt: the unit over which GRPO takes its baseline."""

    task: Task
    trajectories: tuple[Trajectory, ...]

    def __post_init__(self) -> None:
        keys = {trajectory.task.key for trajectory in self.trajectories}
        if keys - {self.task.key}:
            raise ValueError(f"group of {self.task.key} holds rollouts of other tasks: {keys}")
