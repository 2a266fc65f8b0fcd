"""The Model Context Protocol over stdio: one JSON-RPC message per line.

Specification: modelcontextprotocol.io/specification/2025-11-25 (lifecycle, transports, tools). Of
it, a server of tools needs `initialize`, `ping`, `tools/list` and `tools/call`. A client of a newer
revision first sends `server/discover`, learns that there is no such method, and initializes.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import Any, BinaryIO, Protocol

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions of the protocol that this server speaks, the newest first."""
MAX_LINE_BYTES = 4_000_000
NUM_THREADS = 8
"""Calls at once: one that waits for a run does not delay the others."""
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
Json = dict[str, Any]

log = logging.getLogger(__name__)


class Tools(Protocol):
    """The tools that a server offers."""

    instructions: str
    """How to use them, for the agent."""

    def described(self) -> Sequence[Json]:
        """Return every tool with its name, description and schema of arguments."""

    def has(self, name: str) -> bool:
        """Return True if there is a tool of this name."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Json | str, bool]:
        """Return the result of a tool, and True if it is a refusal."""

    def stop(self) -> None:
        """End calls that wait."""


class RpcError(Exception):
    """A request that the protocol refuses."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """Answers messages; each call of a tool runs in a thread of its own."""

    def __init__(self, tools: Tools, output: BinaryIO) -> None:
        self._tools, self._output = tools, output
        self._lock = threading.Lock()

    def answer(self, message: Json) -> None:
        """Answer a request; nothing is sent for a notification or a client's own answer."""
        if "method" not in message or "id" not in message:
            return
        number = message["id"]
        try:
            result = self._result(str(message["method"]), _object(message.get("params"), "params"))
        except RpcError as error:
            self.refuse(number, error)
        except Exception:
            log.exception("a request failed")
            self.refuse(number, RpcError(INTERNAL, "internal error; standard error has it"))
        else:
            self._send({"id": number, "result": result})

    def refuse(self, number: object, error: RpcError) -> None:
        """Send an error of the protocol."""
        self._send({"id": number, "error": {"code": error.code, "message": str(error)}})

    def _result(self, method: str, params: Json) -> Json:
        if method == "initialize":
            revision = params.get("protocolVersion")
            return {
                "protocolVersion": revision if revision in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hillclimb", "version": _version()},
                "instructions": self._tools.instructions,
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": list(self._tools.described())}
        if method == "tools/call":
            return self._call(params)
        raise RpcError(NO_METHOD, f"this server has no method {method[:100]!r}")

    def _call(self, params: Json) -> Json:
        name, arguments = params.get("name"), _object(params.get("arguments"), "arguments")
        if not isinstance(name, str) or not self._tools.has(name):
            raise RpcError(INVALID_PARAMS, f"there is no tool {str(name)[:100]!r}: see tools/list")
        result, is_refusal = self._tools.call(name, arguments)
        text = result if isinstance(result, str) else compact_json(result)
        return {"content": [{"type": "text", "text": text}], "isError": is_refusal}

    def _send(self, message: Json) -> None:
        line = compact_json({"jsonrpc": "2.0"} | message).encode() + b"\n"
        with self._lock:
            self._output.write(line)
            self._output.flush()


def serve(tools: Tools, source: BinaryIO, output: BinaryIO) -> None:
    """Answer the messages of `source` until it ends."""
    server = Server(tools, output)
    with ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="mcp") as pool:
        while line := source.readline(MAX_LINE_BYTES + 1):
            try:
                message = _read(line, source)
            except RpcError as error:
                server.refuse(None, error)
                continue
            if message is not None:
                pool.submit(server.answer, message)
        tools.stop()


def _object(value: object, name: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"{name} is an object")
    return value


def _read(line: bytes, source: BinaryIO) -> Json | None:
    if len(line) > MAX_LINE_BYTES:
        while line and not line.endswith(b"\n"):
            line = source.readline(MAX_LINE_BYTES)
        raise RpcError(INVALID_REQUEST, f"a message has at most {MAX_LINE_BYTES:,} bytes")
    if not line.strip():
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, "a message is one line of JSON") from error
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "a message is one JSON object")
    return message


def compact_json(value: Any) -> str:
    """Return JSON without spaces, on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _version() -> str:
    try:
        return version("hillclimb")
    except PackageNotFoundError:
        return "0"
