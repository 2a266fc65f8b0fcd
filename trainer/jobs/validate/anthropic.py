"""Teachers behind Anthropic's Messages API with tool use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hillclimb.environment.base import ToolSpec
from trainer.jobs.validate.conversation import (
    CUT_AT_THE_CONTEXT,
    CUT_AT_THE_LIMIT,
    REFUSES,
    Call,
    Message,
    Result,
    Results,
    TeacherReply,
    User,
)
from trainer.jobs.validate.endpoint import Endpoint
from trainer.jobs.validate.errors import TeacherUnavailable

VERSION = "2023-06-01"
CUTS = {
    "max_tokens": CUT_AT_THE_LIMIT,
    "model_context_window_exceeded": CUT_AT_THE_CONTEXT,
    "refusal": REFUSES,
}
"""Reasons of incomplete answers, by `stop_reason`."""


def anthropic_headers(api_key: str | None) -> dict[str, str]:
    """Return the headers of every request."""
    key = {} if api_key is None else {"x-api-key": api_key}
    return {"anthropic-version": VERSION, **key}


class AnthropicTeacher:
    """A `Teacher` by `POST {base_url}/v1/messages`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def answer(
        self, system: str, conversation: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> TeacherReply:
        """See `Teacher.answer`."""
        spec = self._endpoint.spec
        body: dict[str, Any] = {
            "model": spec.model,
            "system": system,
            "messages": [_message(message) for message in conversation],
            "tools": [_tool(tool) for tool in tools],
            "max_tokens": spec.max_output_tokens,
        }
        if spec.temperature is not None:
            body["temperature"] = spec.temperature
        response = await self._endpoint.post("/v1/messages", body)
        usage = response.get("usage")
        if isinstance(usage, dict):
            self._endpoint.count(
                input_tokens=usage.get("input_tokens"), output_tokens=usage.get("output_tokens")
            )
        return _answer(response)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.parameters),
    }


def _message(message: Message) -> dict[str, Any]:
    match message:
        case User(text):
            return {"role": "user", "content": text}
        case TeacherReply(text, calls):
            content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
            content += [_tool_use(call) for call in calls]
            return {"role": "assistant", "content": content}
        case Results(results):
            return {"role": "user", "content": [_tool_result(result) for result in results]}


def _tool_use(call: Call) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": dict(call.arguments or {}),
    }


def _tool_result(result: Result) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": result.id,
        "content": result.text,
        "is_error": result.is_error,
    }


def _answer(response: Mapping[str, Any]) -> TeacherReply:
    try:
        blocks = list(response["content"])
        text = "".join(str(block["text"]) for block in blocks if block["type"] == "text")
        calls = [_read(block) for block in blocks if block["type"] == "tool_use"]
        cut = CUTS.get(str(response.get("stop_reason")))
        if cut is not None and calls and blocks[-1]["type"] == "tool_use":
            # The answer was cut off within this call: its arguments are incomplete.
            calls[-1] = replace(calls[-1], arguments=None)
        return TeacherReply(text, tuple(calls), cut)
    except (KeyError, TypeError, AttributeError) as error:
        raise TeacherUnavailable("the teacher's answer is not a message") from error


def _read(block: Mapping[str, Any]) -> Call:
    arguments = block.get("input")
    return Call(
        id=str(block["id"]),
        name=str(block["name"]),
        arguments=arguments if isinstance(arguments, dict) else None,
        written=json.dumps(arguments),
    )
