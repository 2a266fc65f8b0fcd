"""An instance's tools over MCP's streamable HTTP: a JSON response to each POST, no open streams.

It uses the protocol's message types and not the SDK's server, which has a task group for every
session; an instance here costs nothing between its requests.
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

from hillclimb.environment.base import ToolSpec
from hillclimb.minifleet.export import VERSION
from hillclimb.minifleet.server.context import AppContext
from hillclimb.minifleet.server.faults.injection import InjectedFault
from hillclimb.minifleet.server.problems import FleetProblem
from hillclimb.minifleet.server.state.instances import Instance

SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"
MAX_BODY = 1_000_000
"""Bytes of a request; tool arguments are short."""

Result = Mapping[str, JsonValue]


class ToolCalls:
    """The MCP endpoint of every instance, at `{root}mcp` and at the aggregator's path."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

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
        self._context.requests["mcp_http"] += 1
        self._context.check_key(request, needed=False)
        instance = self._context.instances.find(request.path_params["instance_id"])
        try:
            message = wire.jsonrpc_message_adapter.validate_json(await _body(request))
        except ValidationError:
            return _error(None, wire.INVALID_REQUEST, "not one JSON-RPC 2.0 message", status=400)
        self._check_headers(request, instance, message)
        if not isinstance(message, wire.JSONRPCRequest):
            return Response(status_code=202)
        return await self._answer(request, instance, message)

    async def end(self, request: Request) -> Response:
        """End an MCP session; the instance keeps running."""
        self._context.requests["mcp_http"] += 1
        instance = self._context.instances.find(request.path_params["instance_id"])
        instance.mcp_sessions.discard(request.headers.get(SESSION_HEADER, ""))
        return Response(status_code=204)

    async def stream(self, request: Request) -> Response:
        """Refuse to open a stream: this server sends no notifications."""
        self._context.requests["mcp_http"] += 1
        raise FleetProblem(405, "this server sends nothing on its own")

    def _check_headers(
        self, request: Request, instance: Instance, message: wire.JSONRPCMessage
    ) -> None:
        version = request.headers.get(VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise FleetProblem(400, f"unsupported {VERSION_HEADER} {version[:40]!r}")
        session = request.headers.get(SESSION_HEADER)
        begins = isinstance(message, wire.JSONRPCRequest) and message.method == "initialize"
        if session is not None and not begins and session not in instance.mcp_sessions:
            raise FleetProblem(404, "no such MCP session")

    async def _answer(
        self, request: Request, instance: Instance, message: wire.JSONRPCRequest
    ) -> Response:
        params = message.params or {}

        async def reply(fault: InjectedFault) -> Response:
            env = instance.running_env()
            match message.method:
                case "initialize":
                    return self._initialized(instance, message, params)
                case "tools/list":
                    tools = () if fault.empty_tools else env.tools
                    listed = [
                        _tool(tool, is_read_only=env.is_read_only(tool.name)) for tool in tools
                    ]
                    return _result(message, {"tools": listed})
                case _:
                    return await self._called(instance, message, params)

        match message.method:
            case "initialize":
                return await self._context.with_faults(request, "initialize", reply, instance)
            case "tools/list":
                return await self._context.with_faults(request, "tool_list", reply, instance)
            case "tools/call":
                return await self._context.with_faults(request, "tool_call", reply, instance)
            case "ping":
                return _result(message, {})
        return _error(message.id, wire.METHOD_NOT_FOUND, f"no method {message.method[:80]!r}")

    def _initialized(
        self, instance: Instance, message: wire.JSONRPCRequest, params: Mapping[str, JsonValue]
    ) -> Response:
        version = params.get("protocolVersion")
        agreed = version if version in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        info: JsonValue = {"name": f"minifleet {instance.request.env_key}", "version": VERSION}
        response = _result(
            message,
            {"protocolVersion": agreed, "capabilities": {"tools": {}}, "serverInfo": info},
        )
        if self._context.settings.mcp_sessions:
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
        raise FleetProblem(413, f"a message has at most {MAX_BODY} bytes")
    return body


def _tool(spec: ToolSpec, *, is_read_only: bool) -> JsonValue:
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": dict(spec.parameters),
        "annotations": {"readOnlyHint": is_read_only},
    }


def _result(message: wire.JSONRPCRequest, result: Result) -> JSONResponse:
    return JSONResponse({"jsonrpc": "2.0", "id": message.id, "result": result})


def _error(
    request_id: wire.RequestId | None, code: int, text: str, status: int = 200
) -> JSONResponse:
    error = {"code": code, "message": text}
    return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": error}, status)
