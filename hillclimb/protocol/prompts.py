"""Token counts and digests of a run's prompts, which the agents read before their first turn."""

from __future__ import annotations

from pydantic import ConfigDict

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
