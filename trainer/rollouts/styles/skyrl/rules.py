"""SkyRL's turn rules: one call per turn, few words about faults, and its grades.

Source: `FleetTaskEnv.step_async` of SkyRL-Fleet `90062747` and `FleetTaskEnv._compute_reward` of
OpenEnv `009c1ed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hillclimb.environment.base import Grade, ToolCall, ToolResult, ToolSpec
from hillclimb.protocol.outcomes import StopReason
from trainer.rollouts.chat.parsing import ParsedTurn
from trainer.rollouts.styles.skyrl.answers import NO_CALL, render_answer, unknown_tool
from trainer.rollouts.styles.skyrl.turns import STOP_TEXT, read_turn
from trainer.types import Turn

_SCORES = {"verifier_none": 1.0, "no_verifier": 0.0}
"""Scores of episodes that have no grade in the other styles, by the reason of the missing grade."""


class SkyrlRules:
    """The rules of SkyRL's Fleet environment."""

    stop_text = STOP_TEXT
    plays_cut_turns = True
    shows_transcript = False
    no_call = NO_CALL

    def parse(self, text: str, tools: Sequence[ToolSpec] = ()) -> ParsedTurn:
        """Read a turn; see `read_turn`."""
        return read_turn(text)

    def refusal(self, call: ToolCall, tools: Sequence[ToolSpec]) -> ToolResult | None:
        """Refuse a call of an unknown tool in OpenEnv's words."""
        if any(call.name == tool.name for tool in tools):
            return None
        return unknown_tool(call.name)

    def render_results(self, results: Sequence[ToolResult]) -> tuple[str, ...]:
        """Return the message after a turn, which has one result or none."""
        return (render_answer(results[0]) if results else NO_CALL,)

    def grades_unfinished(self, stop: StopReason, turns: Sequence[Turn]) -> bool:
        """Grade only at the turn limit, and only where every turn made a call.

        OpenEnv counts calls and asks the verifier at the last one that is allowed. A turn without
        a call leaves it one short, and SkyRL then scores 0.
        """
        return stop is StopReason.MAX_TURNS and all(turn.tool_name is not None for turn in turns)

    def grade(self, grade: Grade) -> Grade:
        """Return SkyRL's score: 1 where a verifier returns None, 0 where a task has none.

        With partial rewards it is 1 where every check of a failed task passed.
        """
        if grade.score is None and grade.reason in _SCORES:
            return replace(grade, score=_SCORES[grade.reason])
        if grade.score == 0.0 and grade.passed_every_check:
            return replace(grade, score=1.0)
        return grade
