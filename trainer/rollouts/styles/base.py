"""The port of a prompt style: what the policy reads first, and how each of its turns is played.

`own.py` has Hillclimb's rules, the folder `native` the same with the form of calls and answers that
the model's own chat template has, the folder `skyrl` those of SkyRL's Fleet environment. A style
decides nothing about the environment: tools, calls and verifiers are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hillclimb.environment.base import Grade, ToolCall, ToolResult, ToolSpec
from hillclimb.protocol.outcomes import StopReason
from trainer.rollouts.chat.parsing import ParsedTurn
from trainer.rollouts.chat.wording import Wording
from trainer.types import Turn


class TurnRules(Protocol):
    """Rules by which turns are read, executed and answered, and by which episodes are graded."""

    @property
    def stop_text(self) -> str | None:
        """Text after which a turn ends, besides the end of the turn itself."""
        ...

    @property
    def plays_cut_turns(self) -> bool:
        """A turn cut off at its token limit is played; else it ends the episode."""
        ...

    @property
    def shows_transcript(self) -> bool:
        """Verifiers that read the conversation get it."""
        ...

    @property
    def no_call(self) -> str:
        """Observation after a turn that neither calls a tool nor says it is done."""
        ...

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> ParsedTurn:
        """Read a turn; `tools` tell the types of arguments where the form of a call does not.

        Raises:
            EpisodeCrash: the turn ends the episode with a score of 0.
        """
        ...

    def refusal(self, call: ToolCall, tools: Sequence[ToolSpec]) -> ToolResult | None:
        """Return the answer to a call that is not passed to the environment; None passes it on."""
        ...

    def render_results(self, results: Sequence[ToolResult]) -> tuple[str, ...]:
        """Return the messages after a turn; without results it is that of `no_call`."""
        ...

    def grades_unfinished(self, stop: StopReason, turns: Sequence[Turn]) -> bool:
        """Tell whether the verifier may grade an episode that reached a limit."""
        ...

    def grade(self, grade: Grade) -> Grade:
        """Return the grade of an episode, from what the environment returned."""
        ...


class EpisodeCrash(Exception):
    """A turn that ends its episode with a score of 0; `code` is the reason of the grade."""

    code = "turn_crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStyle:
    """A wording with its rules."""

    wording: Wording
    rules: TurnRules
