"""The environment port: the interface between a rollout and its environment.

Async end to end. An environment raises `hillclimb.environment.errors.RolloutError` for its own
faults and returns an error *text* for the policy's; the difference decides whether a rollout is
graded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from hillclimb.environment.sanitize import sanitize_unicode
from hillclimb.environment.task import Task


def shortened(text: str, max_chars: int) -> str:
    """Truncate a tool's answer to `max_chars`, with a note on the number of characters cut."""
    if len(text) <= max_chars:
        return text
    missing = f"the answer has {len(text)} characters, and the last {len(text) - max_chars} are cut"
    return f"{text[:max_chars]}\n[{missing}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", sanitize_unicode(self.name))
        object.__setattr__(self, "description", sanitize_unicode(self.description))
        written = json.dumps(self.parameters, ensure_ascii=False)
        if not written.isascii():
            object.__setattr__(self, "parameters", json.loads(sanitize_unicode(written)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call an agent makes: a tool's name and its JSON arguments."""

    name: str
    arguments: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one call. `is_error` marks answers the policy caused (bad arguments)."""

    text: str
    is_error: bool = False
    ends_episode: bool = False
    images: tuple[bytes, ...] = ()
    """Images of the answer, which no model sees yet; `text` has a line for each."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", sanitize_unicode(self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A verifier's answer: `score` in [0, 1], or None with the reason why there is none."""

    score: float | None
    reason: str | None = None
    """A stable code."""
    detail: str | None = None
    """The cause in words, such as the error of a crashed verifier."""
    verifier_execution_id: str | None = None
    """The platform's name of the verifier's execution."""
    passed_every_check: bool = False
    """The task failed although every check that its verifier reports passed; partial rewards are
    on."""

    def __post_init__(self) -> None:
        if self.reason is not None:
            object.__setattr__(self, "reason", sanitize_unicode(self.reason))
        if self.detail is not None:
            object.__setattr__(self, "detail", sanitize_unicode(self.detail))
        if self.verifier_execution_id is not None:
            name = sanitize_unicode(self.verifier_execution_id)
            object.__setattr__(self, "verifier_execution_id", name)


class Env(Protocol):
    """One episode of one task. Used once; `close` may be called at any time, more than once."""

    async def reset(self) -> tuple[ToolSpec, ...]:
        """Build the start state and return the tools (never empty).

        Raises:
            EnvUnavailable: the environment did not start.
        """
        ...

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Execute one tool call; unknown tools and bad arguments are error results.

        Raises:
            ToolTransport: no response came.
        """
        ...

    async def score(self) -> Grade:
        """Grade the state reached so far.

        Raises:
            VerifierUnavailable: the verifier could not run.
            EnvUnavailable: the environment ended before it was graded.
        """
        ...

    async def close(self) -> None:
        """Release the episode's resources."""
        ...


@runtime_checkable
class SupportsTranscript(Protocol):
    """An `Env` whose verifier may read the conversation."""

    def set_transcript(self, conversation: Sequence[Mapping[str, JsonValue]]) -> None:
        """Set the messages (`role`, `content`) from the task to the last one, before grading."""
        ...


@runtime_checkable
class ReportsMetrics(Protocol):
    """An `Env` that reports metrics of its episode."""

    def measures(self) -> Mapping[str, float]:
        """Return values by name; names that begin with `num_` are counts (docs/metrics.md)."""
        ...


@runtime_checkable
class ProvidesPrompt(Protocol):
    """An `Env` whose reset returns a prompt, or a part of one."""

    @property
    def prompt(self) -> str:
        """The text of the reset, which follows the task's own prompt; empty where there is none."""
        ...


class EnvProvider(Protocol):
    """Makes environments for tasks of the keys it serves."""

    @property
    def env_keys(self) -> tuple[str, ...]:
        """The environments served, in a fixed order."""
        ...

    def make(self, task: Task) -> Env:
        """Return a fresh episode of `task`; cheap, the work happens in `reset`."""
        ...


@runtime_checkable
class LimitsConcurrency(Protocol):
    """An `EnvProvider` with a limit of concurrent episodes."""

    def slot(self, task: Task) -> AbstractAsyncContextManager[None]:
        """Wait for a slot of an episode of `task` and hold it; the wait is in no deadline."""
        ...


@runtime_checkable
class ListsTools(Protocol):
    """An `EnvProvider` that lists tools without starting an environment."""

    def tools_of(self, env_key: str) -> tuple[ToolSpec, ...]:
        """Return the tools that a reset of the environment returns."""
        ...


@runtime_checkable
class AsyncCloseable(Protocol):
    """An `EnvProvider` with resources beyond its episodes."""

    async def close(self) -> None:
        """Release the provider's resources; every episode was closed before."""
        ...
