"""A scripted teacher: a real HTTP server that speaks both protocols and solves minifleet tasks.

It keeps no state: from the conversation in a request it finds the task and how far it got, and asks
the app's scripted expert for the next call.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hillclimb.environment.base import ToolCall, ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.experts import expert

Reply = tuple[int, dict[str, str], bytes]
GARBAGE = b"<html>not json</html>"
NEWER_LIMIT = {
    "error": {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
        " 'max_completion_tokens' instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }
}


@dataclass
class TeacherServer:
    """What the server knows, and what it was asked."""

    tasks: Mapping[str, Task]
    """By prompt."""
    gives_up: Callable[[Task], bool] = lambda _: False
    """Whether it says that it is done at once."""
    faults: list[Reply] = field(default_factory=list)
    """Answers that are given first, one per request."""
    damages_first_call: bool = False
    """Write arguments that are no JSON where a conversation begins."""
    cut: Callable[[Task], str | None] = lambda _: None
    """Why, in the protocol's own word, it says nothing more."""
    cuts_first_call: bool = False
    """Break off within the call where a conversation begins."""
    has_newer_limit: bool = False
    """Refuse `max_tokens` as OpenAI's newer models do."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""

    def reply(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Reply:
        self.paths.append(path)
        self.headers.append({name.lower(): value for name, value in headers.items()})
        self.requests.append(body)
        if self.faults:
            return self.faults.pop(0)
        if self.has_newer_limit and "max_tokens" in body:
            return 400, {}, json.dumps(NEWER_LIMIT).encode()
        is_anthropic = path.endswith("/v1/messages")
        prompt, results = (_read_anthropic if is_anthropic else _read_openai)(body)
        task = self.tasks[prompt]
        damages = self.damages_first_call and not results
        good = [text for text, is_error in results if not is_error]
        reason = self.cut(task)
        call = None if self.gives_up(task) or reason else next_call(task, good)
        if self.cuts_first_call and not results:
            damages, reason = True, "max_tokens" if is_anthropic else "length"
        write = _write_anthropic if is_anthropic else _write_openai
        answer = write(call, number=len(results), damages=damages, reason=reason)
        return 200, {}, json.dumps(answer).encode()


def next_call(task: Task, results: Sequence[str]) -> ToolCall | None:
    """Return what the expert calls after these answers, or None when it is done."""
    run = expert(task)
    call: ToolCall | None = next(run)
    for text in results:
        try:
            call = run.send(ToolResult(text=text))
        except StopIteration:
            return None
    return call


@contextmanager
def teaching(tasks: Sequence[Task]) -> Iterator[TeacherServer]:
    """A teacher of these tasks on a free port of the loopback interface."""
    teacher = TeacherServer({task.prompt: task for task in tasks})
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                status, headers, data = teacher.reply(self.path, dict(self.headers), body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    teacher.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield teacher
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _read_openai(body: Mapping[str, Any]) -> tuple[str, list[tuple[str, bool]]]:
    messages = body["messages"]
    assert [message["role"] for message in messages[:2]] == ["system", "user"]
    asked = [call["id"] for each in messages for call in each.get("tool_calls") or ()]
    answered = [each for each in messages if each["role"] == "tool"]
    assert [each["tool_call_id"] for each in answered] == asked
    assert all(tool["function"]["parameters"]["type"] == "object" for tool in body["tools"])
    texts = [each["content"] for each in answered]
    return messages[1]["content"], [(text, text.startswith("Error: ")) for text in texts]


def _read_anthropic(body: Mapping[str, Any]) -> tuple[str, list[tuple[str, bool]]]:
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    assert body["system"]
    assert all(tool["input_schema"]["type"] == "object" for tool in body["tools"])
    blocks = [
        block
        for message in messages[1:]
        for block in (message["content"] if isinstance(message["content"], list) else ())
    ]
    asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    answered = [block for block in blocks if block["type"] == "tool_result"]
    assert [block["tool_use_id"] for block in answered] == asked
    return messages[0]["content"], [(each["content"], each["is_error"]) for each in answered]


def _write_openai(
    call: ToolCall | None, *, number: int, damages: bool, reason: str | None
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if call else "done"}
    if call is not None:
        arguments = json.dumps(dict(call.arguments))
        if damages:
            arguments = "" if reason else "{not json"
        function = {"name": call.name, "arguments": arguments}
        message["tool_calls"] = [{"id": f"c{number}", "type": "function", "function": function}]
    if reason == "refusal":
        message |= {"content": None, "refusal": "I cannot help with that."}
        reason = "stop"
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    ended = reason or ("tool_calls" if call else "stop")
    choice = {"index": 0, "message": message, "finish_reason": ended}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


def _write_anthropic(
    call: ToolCall | None, *, number: int, damages: bool, reason: str | None
) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": "thinking" if call else "done"}]
    if call is not None:
        given: Any = dict(call.arguments)
        if damages:
            given = {} if reason else "{not json"
        content.append({"type": "tool_use", "id": f"c{number}", "name": call.name, "input": given})
    usage = {"input_tokens": 100, "output_tokens": 10}
    ended = reason or ("tool_use" if call else "end_turn")
    return {
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": ended,
        "usage": usage,
    }
