"""Conversation: a rollout as turns of thought, text and tool calls, without tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from hillclimb.protocol.outcomes import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCall:
    """A tool call with the environment's answer."""

    name: str | None
    """None: the call could not be read."""
    arguments: Mapping[str, JsonValue] = field(default_factory=dict)
    answer: str | None = None
    """None: no answer came, as for the last call of an interrupted episode."""
    is_error: bool = False
    """The environment marked its answer as an error. Some platforms never do, and answer with an
    error as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationTurn:
    """One model turn: a thought, then text, then calls in order."""

    thinking: str = ""
    """Text inside `<think>`, tags excluded."""
    text: str = ""
    """Text outside thoughts, calls and `<done>`, stripped."""
    calls: tuple[ConversationCall, ...] = ()
    says_done: bool = False
    reply: str | None = None
    """The environment's reply to a turn without calls, such as a request for one."""
    num_tokens: int | None = None
    """Sampled tokens; None where only text was stored."""
    num_thinking_tokens: int | None = None
    """Those of them inside `<think>`, tags included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A finished rollout as a conversation."""

    task_key: str
    env_key: str
    prompt: str
    """The task as the policy read it; for an imported one the system message too."""
    turns: tuple[ConversationTurn, ...]
    stop_reason: StopReason
    env_variables: Mapping[str, str] = field(default_factory=dict)
    score: float | None = None
    """None: no grade."""
    passed: bool | None = None
    """The score reaches the pass threshold; None: no grade."""

    def calls(self) -> Iterator[ConversationCall]:
        """Yield every call, in order."""
        for turn in self.turns:
            yield from turn.calls

    @property
    def thinking_share(self) -> float | None:
        """Share of the sampled tokens inside thoughts, in [0, 1]; None if nothing was sampled.

        Where the tokens of a turn are unknown it is the share of all characters.
        """
        tokens = [turn.num_tokens for turn in self.turns]
        thoughts = [turn.num_thinking_tokens for turn in self.turns]
        if None in tokens or None in thoughts:
            tokens = [_num_chars(turn) for turn in self.turns]
            thoughts = [len(turn.thinking) for turn in self.turns]
        total = _sum(tokens)
        return _sum(thoughts) / total if total else None


def _sum(counts: Iterable[int | None]) -> int:
    return sum(count or 0 for count in counts)


def _num_chars(turn: ConversationTurn) -> int:
    calls = sum(len(call.name or "") + len(str(dict(call.arguments))) for call in turn.calls)
    return len(turn.thinking) + len(turn.text) + calls
