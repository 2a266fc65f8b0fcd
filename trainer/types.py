"""The values that travel through the trainer: task -> trajectory -> group -> batch.

Everything here is frozen; a later stage makes a new value instead of changing one in place.
Shape legend: T tokens of one trajectory, G rollouts of one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from trainer.contract.outcomes import Outcome, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem posed to the agent in one environment.

    Example:
        Task(key="booking-train-00017", env_key="booking", template="hotel_cheapest",
             prompt="Book the cheapest hotel in Brno for 3 nights.", difficulty=2,
             env_variables={"CURRENT_DATE": "2026-03-14", "LOGGED_IN_USER": "mira@post.example"},
             payload={"seed": 17})
    """

    key: str
    env_key: str
    prompt: str
    """What is asked of the agent; empty where only the environment knows it, after its reset."""
    template: str
    """Which generator made it; those never trained on are marked by `held_out_template`."""
    difficulty: int | None
    """1 (one dependency) to 3 (several entities and a rule of the app); null: nobody said."""
    held_out_template: bool = False
    env_variables: Mapping[str, str] = field(default_factory=dict)
    """Shown to the model: at least CURRENT_DATE (ISO date) and LOGGED_IN_USER."""
    payload: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the environment needs to build its start state and verifier; never shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn. `temperature` 0 is greedy. `top_p` 1 leaves log-probs exact."""

    temperature: float
    max_new_tokens: int
    top_p: float = 1.0
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    """Seeds the draw of this request alone, so batching never changes what is sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What an engine returns for one request: only new tokens, aligned with their log-probs."""

    token_ids: tuple[int, ...]
    """Includes the stop token when one was drawn."""
    logprobs: tuple[float, ...]
    """Natural-log probability of each token under the distribution it was drawn from
    (temperature applied): the behaviour policy."""
    stopped: bool
    """True when a stop token ended it, False when `max_new_tokens` did."""
    weight_versions: tuple[int, ...]
    """Version of the weights that drew each token: an update may come between two of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One model turn and what the environment answered, as text for people to read."""

    response: str
    tool_name: str | None
    tool_arguments: Mapping[str, JsonValue] | None
    observation: str | None
    is_error: bool = False
    call_index: int = 0
    """Position among the calls of one model turn; later ones carry an empty `response`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One rollout as the exact token sequence that was sampled.

    Shapes: `token_ids`, `action_mask`, `logprobs`, `weight_versions` are all [T].
    `action_mask[t]` is True where the policy drew the token; elsewhere (prompt, observations)
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
