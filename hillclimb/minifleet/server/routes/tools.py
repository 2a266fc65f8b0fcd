"""An instance's tools over MCP's streamable HTTP: one POST, one JSON answer, nothing kept open.

Written over the protocol's message types and not over the SDK's server, which holds a task group
for every session; an instance here costs nothing while no request of it is under way.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import mcp_types as wire
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import JsonValue, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainer.envs.base import ToolSpec
from trainer.envs.minifleet.export import VERSION
from trainer.envs.minifleet.server.desk import Desk
from trainer.envs.minifleet.server.instances import Instance
from trainer.envs.minifleet.server.problems import Problem
from trainer.envs.minifleet.server.strikes import Strike

SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
MAX_BODY = 1_000_000
"""Bytes of a request; tool arguments are short."""

Result = Mapping[str, JsonValue]


class ToolCalls:
    """The MCP endpoint of every instance, at `{root}mcp` and at the aggregator's path."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        """Return the two paths; a GET, which would open a stream, is answered 405."""
        paths = ("/{instance_id}/mcp", "/{instance_id}/api/v1/mcp")
        return [
            Route(path, answer, methods=[method])
            for path in paths
            for method, answer in (("POST", self.post), ("DELETE", self.end), ("GET", self.stream))
        ]

    async def post(self, request: Request) -> Response:
        """Answer one message."""
        self._desk.requests["mcp_http"] += 1
        self._desk.check_key(request, needed=False)
        instance = self._desk.instances.find(request.path_params["instance_id"])
        try:
            message = wire.jsonrpc_message_adapter.validate_json(await _body(request))
        except ValidationError:
            return _error(None, wire.INVALID_REQUEST, "not one JSON-RPC 2.0 message", status=400)
        self._check_headers(request, instance, message)
        if not isinstance(message, wire.JSONRPCRequest):
            return Response(status_code=202)
        return await self._answer(request, instance, message)

    async def end(self, request: Request) -> Response:
        """End an MCP session; the instance lives on."""
        self._desk.requests["mcp_http"] += 1
        instance = self._desk.instances.find(request.path_params["instance_id"])
        instance.mcp_sessions.discard(request.headers.get(SESSION_HEADER, ""))
        return Response(status_code=204)

    async def stream(self, request: Request) -> Response:
        """Refuse to open a stream: this server never speaks first."""
        self._desk.requests["mcp_http"] += 1
        raise Problem(405, "this server sends nothing on its own")

    def _check_headers(
        self, request: Request, instance: Instance, message: wire.JSONRPCMessage
    ) -> None:
        version = request.headers.get(VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise Problem(400, f"unsupported {VERSION_HEADER} {version[:40]!r}")
        session = request.headers.get(SESSION_HEADER)
        begins = isinstance(message, wire.JSONRPCRequest) and message.method == "initialize"
        if session is not None and not begins and session not in instance.mcp_sessions:
            raise Problem(404, "no such MCP session")

    async def _answer(
        self, request: Request, instance: Instance, message: wire.JSONRPCRequest
    ) -> Response:
        params = message.params or {}

        async def reply(strike: Strike) -> Response:
            env = instance.running_env()
            match message.method:
                case "initialize":
                    return self._initialized(instance, message, params)
                case "tools/list":
                    tools = () if strike.empty_tools else env.tools
                    listed = [_tool(tool, only_looks=env.only_looks(tool.name)) for tool in tools]
                    return _result(message, {"tools": listed})
                case _:
                    return await self._called(instance, message, params)

        match message.method:
            case "initialize":
                return await self._desk.struck(request, "initialize", reply, instance)
            case "tools/list":
                return await self._desk.struck(request, "tool_list", reply, instance)
            case "tools/call":
                return await self._desk.struck(request, "tool_call", reply, instance)
            case "ping":
                return _result(message, {})
        return _error(message.id, wire.METHOD_NOT_FOUND, f"no method {message.method[:80]!r}")

    def _initialized(
        self, instance: Instance, message: wire.JSONRPCRequest, params: Mapping[str, JsonValue]
    ) -> Response:
        asked = params.get("protocolVersion")
        known = asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        info: JsonValue = {"name": f"minifleet {instance.request.env_key}", "version": VERSION}
        response = _result(
            message,
            {"protocolVersion": known, "capabilities": {"tools": {}}, "serverInfo": info},
        )
        if self._desk.settings.mcp_sessions:
            session = secrets.token_hex(16)
            instance.mcp_sessions.add(session)
            response.headers[SESSION_HEADER] = session
        return response

    async def _called(
        self, instance: Instance, message: wire.JSONRPCRequest, params: Mapping[str, JsonValue]
    ) -> Response:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return _error(message.id, wire.INVALID_PARAMS, "params: name and an object, arguments")
        result = await instance.running_env().call(name, arguments)
        content: JsonValue = [{"type": "text", "text": result.text}]
        return _result(message, {"content": content, "isError": result.is_error})


async def _body(request: Request) -> bytes:
    body = await request.body()
    if len(body) > MAX_BODY:
        raise Problem(413, f"a message has at most {MAX_BODY} bytes")
    return body


def _tool(spec: ToolSpec, *, only_looks: bool) -> JsonValue:
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": dict(spec.parameters),
        "annotations": {"readOnlyHint": only_looks},
    }


def _result(message: wire.JSONRPCRequest, result: Result) -> JSONResponse:
    return JSONResponse({"jsonrpc": "2.0", "id": message.id, "result": result})


def _error(
    request_id: wire.RequestId | None, code: int, text: str, status: int = 200
) -> JSONResponse:
    error = {"code": code, "message": text}
    return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": error}, status)
