"""The environment port: what a rollout may ask of the world.

Async end to end. An environment raises `trainer.errors.RolloutError` for its own faults and
returns an error *text* for the policy's; the difference decides whether a rollout is graded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from trainer.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


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
    """PNG bytes; always empty for the `tool_use` modality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A verifier's answer: `score` in [0, 1], or None with the reason why there is none."""

    score: float | None
    reason: str | None = None


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
            ToolTransport: no answer came.
        """
        ...

    async def score(self) -> Grade:
        """Grade the state reached so far.

        Raises:
            VerifierUnavailable: the verifier could not run.
        """
        ...

    async def close(self) -> None:
        """Give back whatever the episode holds."""
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
