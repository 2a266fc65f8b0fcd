"""What the agents of a run read before their first turn: how long it is, and a hash of it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Prompts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TokenSpread(_Prompts):
    """Numbers of tokens over the tasks of an environment that were counted."""

    min: int
    median: float
    max: int


class EnvPrompts(_Prompts):
    """The prompts of all tasks of one environment, training and evaluation."""

    digest: str
    """SHA-256 over the rendered prompts of all its tasks: it changes with wording, tools, dates,
    variables and with the tasks themselves."""
    num_tasks: int
    """Where the environment words its tasks (OpenEnv without a dataset): those it was asked for."""
    num_tools: int
    num_counted: int
    """Tasks whose tokens were counted, spread evenly; a run of kind `preview` counts all."""
    num_too_long: int
    """Of those counted: tasks whose prompt is longer than `rollout.max_input_length`."""
    system_tokens: TokenSpread
    """Of the system message without its tools."""
    tools_tokens: TokenSpread
    """Of the lines that describe the tools."""
    task_tokens: TokenSpread
    """Of the task's own words."""
    total_tokens: TokenSpread
    """Of all that is sent, markers included."""
    longest_task: str
    """Key of the task with the most tokens in all."""


class PromptText(_Prompts):
    """One task's prompt as the model reads it, with its numbers of tokens: a line of the file."""

    env_key: str
    task_key: str
    system: str
    """The system message."""
    task: str
    """The first user message."""
    text: str
    """Both with the markers of the wire, decoded from the tokens that are sent."""
    system_tokens: int
    tools_tokens: int
    task_tokens: int
    total_tokens: int
    is_too_long: bool
