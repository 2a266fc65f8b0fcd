"""The parts of a model turn's text: thought, text, and whether it says done."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MARK = re.compile(r"<(tool_call|function_call)>|</?think>|<done\s{0,9}/?>", re.IGNORECASE)
_END_OF_THOUGHT = re.compile(r"</think>", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseParts:
    """A model turn's text, apart from its calls."""

    thinking: str
    """Text of the thoughts, tags excluded."""
    text: str
    """Text outside thoughts, calls and `<done>`, stripped."""
    says_done: bool
    has_call: bool
    """It opens a call, readable or not."""
    call_bodies: tuple[str, ...] = ()
    """Text inside each call before `<done>`, tags excluded."""


def split_response(response: str) -> ResponseParts:
    """Split a turn by the parser's rules.

    Tags within thoughts and calls do not count, an unclosed thought extends to the end, what
    follows `<done>` is no text, and a `</think>` without an opening tag ends a thought that the
    generation prompt opened.
    """
    thinking: list[str] = []
    text: list[str] = []
    bodies: list[str] = []
    says_done = has_call = has_thought = False
    position = 0
    while (mark := _MARK.search(response, position)) is not None:
        if not says_done:
            text.append(response[position : mark.start()])
        tag, position = mark[0].lower(), mark.end()
        if mark[1] is not None:
            body_end, end_of_call = _end_of_call(response, position, mark[1])
            bodies += [] if says_done else [response[position:body_end]]
            has_call, position = True, end_of_call
        elif tag == "<think>":
            end = _END_OF_THOUGHT.search(response, position)
            thinking.append(response[position : end.start() if end else len(response)])
            has_thought, position = True, end.end() if end else len(response)
        elif tag == "</think>":
            if not has_thought:
                thinking, text, says_done, has_call = [response[: mark.start()]], [], False, False
                bodies.clear()
            has_thought = True
        else:
            says_done = True
    if not says_done:
        text.append(response[position:])
    return ResponseParts(
        thinking="\n".join(thinking).strip(),
        text="".join(text).strip(),
        says_done=says_done,
        has_call=has_call,
        call_bodies=tuple(bodies),
    )


def _end_of_call(response: str, start: int, name: str) -> tuple[int, int]:
    """Return where the call's body ends, and where the call ends."""
    closing = re.compile(rf"</{name}>", re.IGNORECASE).search(response, start)
    return closing.span() if closing else (len(response), len(response))
