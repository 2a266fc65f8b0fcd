"""Teachers behind chat completions with tool calls, the API of OpenAI and most servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hillclimb.environment.base import ToolSpec
from trainer.jobs.validate.conversation import (
    CUT_AT_THE_LIMIT,
    CUT_BY_A_FILTER,
    REFUSES,
    Call,
    Message,
    Results,
    TeacherReply,
    User,
)
from trainer.jobs.validate.endpoint import Endpoint
from trainer.jobs.validate.errors import RequestRefused, TeacherUnavailable

LIMIT, NEWER_LIMIT = "max_tokens", "max_completion_tokens"
"""Most servers only accept the first name; OpenAI's newer models reject it for the second."""
CUTS = {"length": CUT_AT_THE_LIMIT, "content_filter": CUT_BY_A_FILTER}
"""Reasons of incomplete answers, by `finish_reason`."""


def openai_headers(api_key: str | None) -> dict[str, str]:
    """Return the headers of every request."""
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


class OpenAITeacher:
    """A `Teacher` by `POST {base_url}/chat/completions`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._limit = LIMIT

    async def answer(
        self, system: str, conversation: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> TeacherReply:
        """See `Teacher.answer`."""
        spec = self._endpoint.spec
        body: dict[str, Any] = {
            "model": spec.model,
            "messages": [
                {"role": "system", "content": system},
                *(item for message in conversation for item in _messages(message)),
            ],
            "tools": [{"type": "function", "function": _function(tool)} for tool in tools],
        }
        if spec.temperature is not None:
            body["temperature"] = spec.temperature
        response = await self._post(body)
        usage = response.get("usage")
        if isinstance(usage, dict):
            self._endpoint.count(
                input_tokens=usage.get("prompt_tokens"),
                output_tokens=usage.get("completion_tokens"),
            )
        return _answer(response)

    async def _post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a request, with the name of the token limit that this endpoint accepts."""
        limit, path = self._limit, "/chat/completions"
        max_tokens = self._endpoint.spec.max_output_tokens
        try:
            return await self._endpoint.post(path, {**body, limit: max_tokens})
        except RequestRefused as refusal:
            if limit == NEWER_LIMIT or NEWER_LIMIT not in refusal.body:
                raise
        self._limit = NEWER_LIMIT
        return await self._endpoint.post(path, {**body, NEWER_LIMIT: max_tokens})


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }


def _messages(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case User(text):
            yield {"role": "user", "content": text}
        case TeacherReply(text, calls):
            turn: dict[str, Any] = {"role": "assistant", "content": text or None}
            if calls:
                turn["tool_calls"] = [_call(call) for call in calls]
            yield turn
        case Results(results):
            for result in results:
                text = f"Error: {result.text}" if result.is_error else result.text
                yield {"role": "tool", "tool_call_id": result.id, "content": text}


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.written}
    return {"id": call.id, "type": "function", "function": function}


def _answer(response: Mapping[str, Any]) -> TeacherReply:
    try:
        choice = response["choices"][0]
        message = choice["message"]
        calls = [_read(*call) for call in enumerate(message.get("tool_calls") or [])]
        cut = REFUSES if message.get("refusal") else CUTS.get(str(choice.get("finish_reason")))
        if cut is not None and calls:
            # The answer may be cut off within this call's arguments, or before them.
            calls[-1] = replace(calls[-1], arguments=None)
        return TeacherReply(str(message.get("content") or ""), tuple(calls), cut)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise TeacherUnavailable("the teacher's answer is not a chat completion") from error


def _read(number: int, call: Mapping[str, Any]) -> Call:
    function = call["function"]
    written = function.get("arguments") or "{}"
    arguments = None
    try:
        parsed = json.loads(written) if isinstance(written, str) else written
        arguments = parsed if isinstance(parsed, dict) else None
    except ValueError:
        pass
    return Call(
        id=str(call.get("id") or f"call_{number}"),
        name=str(function["name"]),
        arguments=arguments,
        written=written if isinstance(written, str) else json.dumps(written),
    )
