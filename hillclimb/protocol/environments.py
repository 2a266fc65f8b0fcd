"""Reports of a trainer about each environment: its prompts, and its health during rollouts."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from hillclimb.spec.documented import Documented


class _Prompts(Documented):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenSpread(_Prompts):
    """Minimum, median and maximum of token counts over the counted tasks of an environment."""

    min: int
    median: float
    max: int


class EnvPrompts(_Prompts):
    """The prompts of all tasks of one environment, training and evaluation."""

    digest: str
    """SHA-256 over the rendered prompts of all its tasks: it changes with wording, tools, dates,
    variables and the tasks themselves."""
    num_tasks: int
    """Tasks of the environment; if it writes its own prompts (OpenEnv without a dataset), the tasks
    requested from it."""
    num_tools: int
    num_counted: int
    """Tasks whose tokens were counted, spread evenly; a run of kind `preview` counts all."""
    num_too_long: int
    """Counted tasks whose prompt is longer than `rollout.max_input_length`."""
    system_tokens: TokenSpread
    """Tokens of the system message without its tools."""
    tools_tokens: TokenSpread
    """Tokens of the lines that describe the tools."""
    task_tokens: TokenSpread
    """Tokens of the task's own text."""
    total_tokens: TokenSpread
    """Tokens of the whole prompt, chat markers included."""
    longest_task: str
    """Key of the task with the most tokens in total."""


class PromptText(_Prompts):
    """One task's prompt as the model reads it, with its token counts: a line of the file."""

    env_key: str
    task_key: str
    system: str
    """The system message."""
    task: str
    """The first user message."""
    text: str
    """Both with chat markers, decoded from the tokens of the request."""
    system_tokens: int
    tools_tokens: int
    task_tokens: int
    total_tokens: int
    is_too_long: bool


class _Facts(Documented):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OperationHealth(_Facts):
    """One kind of operation on an environment, over all tries of all rollouts."""

    num: Annotated[int, Field(ge=0)]
    """Number of requests."""
    num_failed: Annotated[int, Field(ge=0)]
    """Number of infra errors, and of verifications without a score."""
    p50_s: float | None = None
    """Median latency, failures included (seconds); null if there was no request."""
    p95_s: float | None = None
    """95th percentile of the latency (seconds)."""


class EnvHealth(_Facts):
    """Health of one environment."""

    num_tools: int | None = None
    """Tools offered, the maximum over tasks; null if no environment ever answered."""
    prompt_tokens_p50: float | None = None
    """Median length of the prompt, tools included (tokens)."""
    prompt_tokens_max: int | None = None
    """Longest prompt (tokens)."""
    reset: OperationHealth
    call: OperationHealth
    verification: OperationHealth
    infra_errors: dict[str, int]
    """Number of infra errors by code; retried ones count too."""
