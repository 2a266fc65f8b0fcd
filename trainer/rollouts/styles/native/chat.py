"""Conversations whose ids are those of the model's own chat template, tools and answers included.

The template renders the prompt once and each answer as it comes; what the policy drew stays as it
was drawn. A probe of two rounds with a tool, when a model is loaded, proves that these parts make
up the whole that the template renders, thoughts included: Qwen3's removes thoughts before the last
user message only, and answers of tools are none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar, cast

from pydantic import JsonValue
from tokenizers import Tokenizer

from hillclimb.environment.base import ToolCall, ToolSpec
from trainer.rollouts.chat.chat import CallForm, Chat
from trainer.rollouts.chat.template import ChatTemplate, Message
from trainer.rollouts.chat.tokenizer import load_tokenizer, read_end_ids
from trainer.rollouts.styles.native.rules import READERS

_TURN = "the words of a turn"
_THOUGHT = "<think>\nthe thought of a turn\n</think>\n\n"
_SYSTEM, _TASK, _ANSWER = "the instructions", "the task", "the answer of a tool"
_QUESTION: Message = {"role": "user", "content": "?"}
_TYPES: dict[str, JsonValue] = {
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "on": {"type": "boolean"},
    "list": {"type": "array"},
}
_PROBE = ToolSpec(
    name="probe_of_calls",
    description="Probes.",
    parameters={"type": "object", "properties": _TYPES},
)
_CALL = ToolCall(name=_PROBE.name, arguments={"text": "1", "number": 1, "on": True, "list": ["a"]})
_FIRST_PRIVATE, _LAST_PRIVATE = 0xE000, 0xF8FF
_CACHE_SIZE = 64
"""Parts of the latest prompts whose ids are kept: tasks share the longest, which has the tools."""
_Content = TypeVar("_Content")


class NativeChat(Chat):
    """The chat of a model in the form of its own template."""

    lists_tools = True

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate, end_ids: Sequence[int] = ()
    ) -> None:
        """Wrap tokenizer and template, and probe them.

        Raises:
            ValueError: the template has no place for tools, changes turns after they were drawn,
                or writes calls in a form that is not read here.
        """
        super().__init__(tokenizer, template.generation_prompt(), end_ids)
        self._template = template
        special = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
        longest_first = sorted({*special, *self._marks.markers}, key=len, reverse=True)
        self._markers = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self._encode_once = lru_cache(_CACHE_SIZE)(self._encode)
        self.call_form: CallForm = self._probe()

    @classmethod
    def from_directory(cls, directory: Path, *, thinking: bool | None = None) -> NativeChat:
        """Load tokenizer and template of a model directory in Hugging Face form.

        `thinking` is passed to the template; None leaves it at the template's default.

        Raises:
            ModelUnavailable: there is no tokenizer.
            ValueError: as `NativeChat`, or there is no template.
        """
        template = ChatTemplate.read(directory, thinking=thinking)
        if template is None:
            raise ValueError("it has no chat template, which prompt.tool_format: native follows")
        return cls(load_tokenizer(directory), template, read_end_ids(directory))

    def encode_opening(
        self, system: str, prompt: str, tools: Sequence[ToolSpec] = ()
    ) -> tuple[int, ...]:
        """Return the ids of the rendered system message, tools, first user message and open turn.

        Raises:
            ValueError: the template refuses them.
        """
        content = (_opening(system, prompt), _functions(tools))
        (messages, functions), guard = _guarded(content, self._markers)
        text = self._template.render(messages, tools=functions, opens_turn=True)
        return self._ids_of(text, guard, self._encode_once)

    def encode_results(
        self, messages: Sequence[str], *, turn_closed: bool = True
    ) -> tuple[int, ...]:
        """Return the ids after a turn: its end if missing, an answer per message, an open turn.

        Raises:
            ValueError: the template refuses them.
        """
        answers, guard = _guarded([*map(_answer, messages)], self._markers)
        tail = self._ids_of(self._after_turn(answers), guard, self._encode)
        return tail[1:] if turn_closed else tail

    def turn_text(self, content: str, calls: Sequence[ToolCall]) -> str:
        """Return the text of a turn, without what the generation prompt has of it.

        Raises:
            ValueError: the template refuses it, such as two calls in a turn of Llama 3's.
        """
        turn: Message = {"role": "assistant", "content": content, **_calls(calls)}
        text = self._template.render([_QUESTION, turn, _answer("")], opens_turn=True)
        rest = text.partition(self.opening_of_turn)[2]
        words = rest.removesuffix(self._after_turn([_answer("")]))
        return words.removeprefix(self.prefill)

    def _after_turn(self, answers: Sequence[Message]) -> str:
        """Render what follows the words of a turn, from its end marker on."""
        turn: Message = {"role": "assistant", "content": _TURN}
        text = self._template.render([_QUESTION, turn, *answers], opens_turn=True)
        return text.partition(_TURN)[2]

    def _ids_of(
        self, text: str, guard: str, encode: Callable[[str], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Encode rendered text: the template's markers by id, all other text as text."""
        ids: list[int] = []
        for index, part in enumerate(self._markers.split(text)):
            if index % 2:
                ids.append(self.token_id(part))
            else:
                ids += encode(part.replace(guard, "") if guard else part)
        return tuple(ids)

    def _probe(self) -> CallForm:
        """Return the form of calls, once rounds with a tool are the sum of their parts.

        Raises:
            ValueError: they are not, or the form is not read here.
        """
        opening, tools = _opening(_SYSTEM, _TASK), _functions([_PROBE])

        def rendered(*rounds: Message) -> str:
            messages = [each for turn in rounds for each in (turn, _answer(_ANSWER))]
            return self._template.render([*opening, *messages], tools=tools, opens_turn=True)

        prompt, tail = rendered(), self._after_turn([_answer(_ANSWER)])
        is_complete = all(text in prompt for text in (_SYSTEM, _TASK, _PROBE.name))
        if not is_complete or _ANSWER not in tail or not tail.startswith(self.end_of_turn):
            raise ValueError("its chat template has no place for tools, answers or instructions")
        # An empty thought is kept in a tool loop when it is sent as the end of a line.
        thinks = "</think>" not in self.prefill
        thought = {} if thinks else {"reasoning_content": "\n"}
        speech = f"{_THOUGHT}{_TURN}" if thinks else _TURN
        words = rendered({"role": "assistant", "content": speech, **thought})
        calling: Message = {"role": "assistant", "content": "", **thought, **_calls([_CALL])}
        call = rendered(calling).removeprefix(prompt).removesuffix(tail)
        both = prompt + call + tail + call + tail
        is_same = words == prompt + speech.removeprefix(self.prefill) + tail
        if not is_same or rendered(calling, calling) != both:
            raise ValueError("its chat template changes turns of a tool loop after they were drawn")
        for form, read in READERS.items():
            if read(call, [_PROBE]).calls == (_CALL,):
                return form
        raise ValueError(f"its chat template writes calls in a form that is not read: {call!r}")


def _guarded(content: _Content, markers: re.Pattern[str]) -> tuple[_Content, str]:
    """Return messages and tools in which no text spells a marker, and the character that does so.

    It occurs nowhere else, so that it can be removed again; "" where nothing spells a marker.
    """
    written = json.dumps(content, ensure_ascii=False)
    if markers.search(written) is None:
        return content, ""
    private = map(chr, range(_FIRST_PRIVATE, _LAST_PRIVATE + 1))
    guard = next(each for each in private if each not in written)
    split = markers.sub(lambda marker: f"{marker[0][0]}{guard}{marker[0][1:]}", written)
    return cast("_Content", json.loads(split)), guard


def _opening(system: str, prompt: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]


def _answer(text: str) -> Message:
    return {"role": "tool", "content": text}


def _functions(tools: Sequence[ToolSpec]) -> list[JsonValue]:
    """Describe tools as chat completions do."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]


def _calls(calls: Sequence[ToolCall]) -> Message:
    """Return the calls of a turn; templates ask whether the key is there."""
    functions: list[JsonValue] = [
        {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}}
        for call in calls
    ]
    return {"tool_calls": functions} if functions else {}
