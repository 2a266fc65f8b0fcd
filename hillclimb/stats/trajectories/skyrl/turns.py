"""Turns of a SkyRL response: one text with the chat template's markers, as stored turns.

The markers are ChatML's, which Qwen's templates use. A response without any is one model turn.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from hillclimb.protocol.payloads.results.rollouts import StoredTurn
from hillclimb.stats.trajectories.response import split_response

END_OF_MESSAGE = "<|im_end|>"
_START = re.compile(r"<\|im_start\|>(system|user|assistant|tool)[ \t]*\n?")
_OPENING, _CLOSING = "<tool_response>", "</tool_response>"
_NAMES = ("name", "tool")
_ARGUMENTS = ("arguments", "params")
MAX_MISSING_BRACES = 3
"""Final braces that Fleet's environment adds to a call."""
MAX_CALL_CHARS = 1 << 20
MAX_DEPTH = 64
"""Nesting of a call's arguments; deeper ones count as unreadable."""


def prompt_text(input_prompt: str) -> str:
    """Return the messages of a prompt, without markers and an empty last one."""
    pieces = [text for _, text in _messages(input_prompt, first="system") if text]
    return "\n\n".join(pieces)


def response_turns(output_response: str) -> tuple[StoredTurn, ...]:
    """Return the model turns of a response with the environment's answers, one entry per call.

    Fleet's environment executes the first call of a turn. Where it answered as often as the turn
    has calls, each call has its answer; else the first one has all of them.
    """
    turns: list[StoredTurn] = []
    response: str | None = None
    answers: list[str] = []
    for role, text in _messages(output_response, first="assistant"):
        if role != "assistant":
            answers += _answers(text) or [text]
            continue
        if response is not None:
            turns += _turn(response, answers)
        response, answers = text, []
    if response:
        turns += _turn(response, answers)
    return tuple(turns)


def is_cut_off(output_response: str) -> bool:
    """Tell whether the last message lacks its end, as after a turn that used up its tokens."""
    last = _START.split(output_response)[-1]
    return bool(last) and END_OF_MESSAGE not in last


def _messages(text: str, *, first: str) -> list[tuple[str, str]]:
    """Return role and text of each message; the text before the first marker has the role `first`.

    A marker is one wherever it stands: the dump does not tell a model's own from the template's.
    """
    parts = _START.split(text)
    roles = [first, *parts[1::2]]
    return [
        (role, part.partition(END_OF_MESSAGE)[0].strip())
        for role, part in zip(roles, parts[::2], strict=True)
    ]


def _turn(response: str, answers: list[str]) -> list[StoredTurn]:
    bodies = split_response(response).call_bodies
    if len(answers) > 1 and len(answers) != len(bodies):
        answers = ["\n".join(answers)]
    calls = [_read_call(body) for body in bodies] or [(None, None)]
    return [
        StoredTurn(
            response="" if index else response,
            tool_name=name,
            tool_arguments=arguments,
            observation=answers[index] if index < len(answers) else None,
            is_error=False,
            call_index=index,
        )
        for index, (name, arguments) in enumerate(calls)
    ]


def _answers(text: str) -> list[str]:
    """Return the content of each `<tool_response>`; an unclosed one extends to the end."""
    answers: list[str] = []
    start = text.find(_OPENING)
    while start >= 0:
        begin = start + len(_OPENING)
        end = text.find(_CLOSING, begin)
        answers.append(text[begin : end if end >= 0 else len(text)].strip("\n"))
        start = text.find(_OPENING, end) if end >= 0 else -1
    return answers


def _read_call(body: str) -> tuple[str | None, dict[str, Any] | None]:
    """Return name and arguments of a call; None and None for one that cannot be read."""
    value = _decode(body.strip())
    if not isinstance(value, dict):
        return None, None
    name = next((value[key] for key in _NAMES if key in value), None)
    arguments = next((value[key] for key in _ARGUMENTS if key in value), dict[str, Any]())
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None, None
    return name, arguments


def _decode(body: str) -> object:
    if len(body) > MAX_CALL_CHARS or _depth(body) > MAX_DEPTH:
        return None
    for missing in range(MAX_MISSING_BRACES + 1):
        try:
            return json.loads(body + "}" * missing, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
    return None


def _depth(body: str) -> int:
    """Return an upper bound of the nesting: brackets within strings count too."""
    deepest = depth = 0
    for char in body:
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
