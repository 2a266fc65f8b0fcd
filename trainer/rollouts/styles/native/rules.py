"""Hillclimb's rules with the calls and answers of chat templates: one message per answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from hillclimb.environment.base import ToolResult, ToolSpec
from trainer.rollouts.chat import prompts
from trainer.rollouts.chat.chat import CallForm
from trainer.rollouts.chat.parsing import ParsedTurn, parse_turn
from trainer.rollouts.styles.native.bare_calls import parse_bare_turn
from trainer.rollouts.styles.native.xml_calls import parse_xml_turn
from trainer.rollouts.styles.own import OwnRules

READERS: Mapping[CallForm, Callable[[str, Sequence[ToolSpec]], ParsedTurn]] = MappingProxyType(
    {
        "tagged": lambda text, _: parse_turn(text),
        "bare": lambda text, _: parse_bare_turn(text),
        "xml": parse_xml_turn,
    }
)
"""By form; JSON tells the types of its values, and XML does not."""
_BARE_NO_CALL = (
    'no tool call found. Answer with {"name": ..., "parameters": {...}} alone, or with <done> when'
    " the task is complete."
)
_XML_NO_CALL = (
    "no tool call found. Answer with <tool_call>, <function=NAME>, a <parameter=KEY> for each"
    " argument, </function> and </tool_call>, or with <done> when the task is complete."
)
_NO_CALL: Mapping[CallForm, str] = {"bare": _BARE_NO_CALL, "xml": _XML_NO_CALL}


class NativeRules(OwnRules):
    """Every call of a turn is executed and has an answer of its own."""

    def __init__(self, form: CallForm) -> None:
        """Read calls in the form in which the model writes them."""
        self._read = READERS[form]
        self.no_call = _NO_CALL.get(form, prompts.NO_CALL_OBSERVATION)

    def parse(self, text: str, tools: Sequence[ToolSpec] = ()) -> ParsedTurn:
        """Read a turn; arguments in XML have the types of the tools' schemas."""
        return self._read(text, tools)

    def render_results(self, results: Sequence[ToolResult]) -> tuple[str, ...]:
        """Return one answer per call; those of errors begin with `Error:`."""
        if not results:
            return (f"Error: {self.no_call}",)
        return tuple(f"Error: {r.text}" if r.is_error else r.text for r in results)
