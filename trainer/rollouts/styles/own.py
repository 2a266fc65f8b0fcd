"""Hillclimb's own style: all calls of a turn in order, errors with their reason, no false grades.

Its wording is `trainer/rollouts/chat/prompts.py`, its reading of turns
`trainer/rollouts/chat/parsing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.environment.base import Grade, ToolCall, ToolResult, ToolSpec
from hillclimb.protocol.outcomes import StopReason
from trainer.rollouts.chat import prompts
from trainer.rollouts.chat.parsing import ParsedTurn, parse_turn
from trainer.rollouts.chat.wording import OWN_WORDING, OwnWording
from trainer.rollouts.styles.base import PromptStyle
from trainer.types import Turn


class OwnRules:
    """Every call counts and is answered; only a verifier's number is a score."""

    stop_text = None
    plays_cut_turns = False
    shows_transcript = True
    no_call = prompts.NO_CALL_OBSERVATION

    def parse(self, text: str, tools: Sequence[ToolSpec] = ()) -> ParsedTurn:
        """Read a turn; see `parse_turn`."""
        return parse_turn(text)

    def refusal(self, call: ToolCall, tools: Sequence[ToolSpec]) -> ToolResult | None:
        """Pass every call on: the environment itself answers one of an unknown tool."""
        return None

    def render_results(self, results: Sequence[ToolResult]) -> tuple[str, ...]:
        """Join the results into one observation; among successes, errors get a prefix."""
        if not results:
            return (prompts.render_observation(self.no_call, is_error=True),)
        if len(results) == 1 or all(result.is_error for result in results):
            text = "\n".join(result.text for result in results)
            return (prompts.render_observation(text, is_error=results[0].is_error),)
        text = "\n".join(f"Error: {r.text}" if r.is_error else r.text for r in results)
        return (prompts.render_observation(text, is_error=False),)

    def grades_unfinished(self, stop: StopReason, turns: Sequence[Turn]) -> bool:
        """Grade every state at a limit."""
        return True

    def grade(self, grade: Grade) -> Grade:
        """Return the environment's grade as it is."""
        return grade


OWN_STYLE = PromptStyle(wording=OWN_WORDING, rules=OwnRules())
SHARED_FIRST_STYLE = PromptStyle(wording=OwnWording(shared_first=True), rules=OwnRules())
"""The same with the lines that tasks share in front: version 2 of the prompt."""
