"""The environment port: what a rollout may ask of the world.

Async end to end. An environment raises `trainer.errors.RolloutError` for its own faults and
returns an error *text* for the policy's; the difference decides whether a rollout is graded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from trainer.storable import storable
from trainer.types import Task


def shortened(text: str, max_chars: int) -> str:
    """Return a tool's answer with at most `max_chars` of its own, and a word on what is missing."""
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
        object.__setattr__(self, "name", storable(self.name))
        object.__setattr__(self, "description", storable(self.description))
        written = json.dumps(self.parameters, ensure_ascii=False)
        if not written.isascii():
            object.__setattr__(self, "parameters", json.loads(storable(written)))


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", storable(self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A verifier's answer: `score` in [0, 1], or None with the reason why there is none."""

    score: float | None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None:
            object.__setattr__(self, "reason", storable(self.reason))


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


@runtime_checkable
class HearsConversation(Protocol):
    """What an `Env` also is when its verifier may read the conversation."""

    def hear(self, conversation: Sequence[Mapping[str, JsonValue]]) -> None:
        """Take the messages (`role`, `content`) from the task to the last one, before grading."""
        ...


@runtime_checkable
class Measured(Protocol):
    """What an `Env` also is when it tells what its episode took."""

    def measures(self) -> Mapping[str, float]:
        """Return figures by name; names that begin with `num_` are counts (docs/metrics.md)."""
        ...


@runtime_checkable
class WordsTask(Protocol):
    """What an `Env` also is when it knows the words of its task, after `reset`."""

    @property
    def prompt(self) -> str:
        """The task in words, for tasks that come without; empty where it has none either."""
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
class Queues(Protocol):
    """What an `EnvProvider` also is when it can have only so many episodes at once."""

    def slot(self, task: Task) -> AbstractAsyncContextManager[None]:
        """Wait for a place for an episode of `task` and hold it; its clock stands meanwhile."""
        ...


@runtime_checkable
class KnowsTools(Protocol):
    """What an `EnvProvider` also is when it can tell tools without starting an environment."""

    def tools_of(self, env_key: str) -> tuple[ToolSpec, ...]:
        """Return what a reset of the environment would."""
        ...


@runtime_checkable
class Closes(Protocol):
    """What an `EnvProvider` also is when it holds something beyond its episodes."""

    async def close(self) -> None:
        """Give back whatever the provider holds; every episode was closed before."""
        ...
