"""Teachers behind chat completions with tool calls, the protocol of OpenAI and most servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainer.envs.base import ToolSpec
from trainer.validation.conversation import Answer, Call, Message, Results, User
from trainer.validation.endpoint import Endpoint
from trainer.validation.errors import TeacherUnavailable


def openai_headers(api_key: str | None) -> dict[str, str]:
    """Return what every request carries."""
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


class OpenAITeacher:
    """A `Teacher` by `POST {base_url}/chat/completions`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def answer(
        self, system: str, conversation: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Answer:
        """See `Teacher.answer`."""
        spec = self._endpoint.spec
        body: dict[str, Any] = {
            "model": spec.model,
            "messages": [
                {"role": "system", "content": system},
                *(each for message in conversation for each in _messages(message)),
            ],
            "tools": [{"type": "function", "function": _function(tool)} for tool in tools],
            "max_tokens": spec.max_output_tokens,
        }
        if spec.temperature is not None:
            body["temperature"] = spec.temperature
        found = await self._endpoint.post("/chat/completions", body)
        usage = found.get("usage")
        if isinstance(usage, dict):
            self._endpoint.count(
                input_tokens=usage.get("prompt_tokens"),
                output_tokens=usage.get("completion_tokens"),
            )
        return _answer(found)


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
        case Answer(text, calls):
            turn: dict[str, Any] = {"role": "assistant", "content": text or None}
            if calls:
                turn["tool_calls"] = [_call(call) for call in calls]
            yield turn
        case Results(results):
            for each in results:
                text = f"Error: {each.text}" if each.is_error else each.text
                yield {"role": "tool", "tool_call_id": each.id, "content": text}


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.written}
    return {"id": call.id, "type": "function", "function": function}


def _answer(found: Mapping[str, Any]) -> Answer:
    try:
        message = found["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        text = message.get("content") or ""
        return Answer(str(text), tuple(_read(number, each) for number, each in enumerate(calls)))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise TeacherUnavailable("the teacher's answer is no chat completion") from error


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
