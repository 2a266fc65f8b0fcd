"""Hillclimb's rules with the calls and answers of chat templates: one message per answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from hillclimb.environment.base import ToolResult
from trainer.rollouts.chat import prompts
from trainer.rollouts.chat.chat import CallForm
from trainer.rollouts.chat.parsing import ParsedTurn, parse_turn
from trainer.rollouts.styles.native.bare_calls import parse_bare_turn
from trainer.rollouts.styles.own import OwnRules

READERS: Mapping[CallForm, Callable[[str], ParsedTurn]] = MappingProxyType(
    {"tagged": parse_turn, "bare": parse_bare_turn}
)
_BARE_NO_CALL = (
    'no tool call found. Answer with {"name": ..., "parameters": {...}} alone, or with <done> when'
    " the task is complete."
)


class NativeRules(OwnRules):
    """Every call of a turn is executed and has an answer of its own."""

    def __init__(self, form: CallForm) -> None:
        """Read calls in the form in which the model writes them."""
        self._read = READERS[form]
        self.no_call = _BARE_NO_CALL if form == "bare" else prompts.NO_CALL_OBSERVATION

    def parse(self, text: str) -> ParsedTurn:
        """Read a turn."""
        return self._read(text)

    def render_results(self, results: Sequence[ToolResult]) -> tuple[str, ...]:
        """Return one answer per call; those of errors begin with `Error:`."""
        if not results:
            return (f"Error: {self.no_call}",)
        return tuple(f"Error: {r.text}" if r.is_error else r.text for r in results)
