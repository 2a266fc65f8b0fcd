"""What is not the contract's: redirects, bodies of another form or without end, our own key."""

from __future__ import annotations

import itertools
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from hillclimb.minifleet.experts import expert
from hillclimb.process.network.addresses import NO_HOSTS, OWN_MACHINE_HOSTS
from tests.trainer.envs.fleet.scene import TASK, on_server, with_payload
from tests.trainer.envs.odd_server import Asked, Said, odd_server
from trainer.envs.fleet.instances.limiter import Limiter
from trainer.envs.fleet.instances.request import InstanceRequests
from trainer.envs.fleet.verifiers.verification import of_source
from trainer.envs.fleet.wire.api import FleetAccount, FleetApi, FleetInstance
from trainer.envs.fleet.wire.faults import CallRefused, WireFault
from trainer.envs.fleet.wire.mcp_session import McpSession
from trainer.envs.fleet.wire.retry import CallRetry, Meter
from trainer.envs.fleet.wire.sizes import Sizes

KEY = "very-secret-key"
SMALL = Sizes(max_message_bytes=1 << 20, max_output_chars=100)
Operation = Callable[[FleetApi, str], Awaitable[object]]


def instance(url: str) -> FleetInstance:
    return FleetInstance(id="i", status="running", root_url=url, manager_url=f"{url}/api/v1/env")


OPERATIONS: dict[str, Operation] = {
    "create": lambda api, _: api.create({"env_key": "booking"}, "id"),
    "delete": lambda api, _: api.delete("i"),
    "delete_run": lambda api, _: api.delete_run("tag"),
    "instances_of": lambda api, _: api.instances_of("tag"),
    "heartbeat": lambda api, _: api.heartbeat("i"),
    "reset": lambda api, url: api.reset(instance(url)),
    "task": lambda api, _: api.task("t"),
    "me": lambda api, _: api.me(),
    "execute": lambda api, _: api.execute({}),
    "has_ended": lambda api, _: api.has_ended("i"),
}


async def asked(operation: str, said: Said, sizes: Sizes = SMALL) -> WireFault:
    """Ask a server that says the same to everything; return what is raised."""
    async with odd_server(said) as (url, _):
        api = FleetApi(FleetAccount(base_url=url, key=KEY), sizes)
        try:
            with pytest.raises(WireFault) as caught:
                await OPERATIONS[operation](api, url)
        finally:
            await api.close()
    return caught.value


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_redirect_is_no_success(operation: str) -> None:
    there = {"location": "https://elsewhere.example.org/"}
    fault = await asked(operation, Said(status=307, headers=there))
    assert (fault.kind, fault.status, fault.is_transient) == ("redirect", 307, False)
    assert "https://elsewhere.example.org/" in fault.message


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("create", b"{}"),
        ("create", b"[]"),
        ("delete", b'"deleted"'),
        ("instances_of", b"{}"),
        ("instances_of", b'[{"id": 3}]'),
        ("instances_of", b'["i"]'),
        ("heartbeat", b"[]"),
        ("reset", b"{}"),
        ("reset", b""),
        ("reset", b'{"message": "done"}'),
        ("task", b"{}"),
        ("me", b"{}"),
        ("execute", b"{}"),
        ("execute", b'{"success": "yes"}'),
    ],
)
async def test_a_body_of_another_form_is_no_success(operation: str, body: bytes) -> None:
    fault = await asked(operation, Said(body=body))
    assert fault.kind in ("odd_answer", "no_instance")
    assert not fault.is_transient


@pytest.mark.parametrize("status", [200, 500])
async def test_a_body_without_end_is_not_read_to_it(status: int) -> None:
    fault = await asked("me", Said(status=status, body=itertools.repeat(b" " * 65536)))
    assert (fault.kind, fault.is_transient) == ("too_large", False)
    assert "1048576 bytes (max_message_mib)" in fault.message


def echo(request: Asked) -> Said:
    """As some proxies do on an error page: the request with all its headers."""
    said = {"detail": {"message": f"bad headers: {dict(request.headers)}", **request.headers}}
    return Said(status=400, body=json.dumps(said).encode())


async def test_a_key_that_a_server_repeats_is_shown_nowhere() -> None:
    async with odd_server(echo) as (url, seen):
        api = FleetApi(FleetAccount(base_url=url, key=KEY))
        with pytest.raises(WireFault, match="bad headers") as caught:
            await api.me()
        await api.close()
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in f"{caught.value} {caught.value.detail}"
    assert "Bearer [the API key]" in caught.value.message


@pytest.mark.parametrize(("key", "is_shown"), [("e", True), ("1234567", True), ("12345678", False)])
async def test_a_key_that_occurs_in_ordinary_words_is_cut_out_of_none(
    key: str, *, is_shown: bool
) -> None:
    said = f"the version 1234567890 does not exist, nor does {key}"
    async with odd_server(Said(status=400, body=json.dumps({"detail": said}).encode())) as (url, _):
        api = FleetApi(FleetAccount(base_url=url, key=key))
        with pytest.raises(WireFault) as caught:
            await api.me()
        await api.close()
    message = said if is_shown else said.replace(key, "[the API key]")
    assert caught.value.message == message


@pytest.mark.parametrize("where", ["root", "manager"])
async def test_the_key_goes_to_no_instance_in_the_clear(where: str) -> None:
    urls = {
        "root": "https://i.example.org/",
        "manager": {"api": "https://i.example.org/api/v1/env"},
    }
    open_wire: Any = "http://i.example.org/"
    urls[where] = {"api": open_wire} if where == "manager" else open_wire
    row = {"instance_id": "i", "status": "running", "urls": urls}
    fault = await asked("create", Said(body=json.dumps(row).encode()))
    assert fault.kind == "open_wire"
    assert fault.may_be_done, "it was made, and has to be deleted"


async def test_a_verifier_is_found_where_the_wire_has_it() -> None:
    source = "def verify(env):\n    return 1\n"
    row = {"key": TASK.key, "verifier": {"key": "v", "sha256": "x", "code": source}}
    async with odd_server(Said(body=json.dumps({"tasks": [row]}).encode())) as (url, _):
        api = FleetApi(FleetAccount(base_url=url, key=KEY))
        retry = CallRetry(operation_s=5.0, meter=Meter(), load=Limiter(1))
        request = await InstanceRequests(api).of(with_payload(), retry)
        await api.close()
    assert request.verifier == of_source(TASK.key, source)


class Tools:
    """A server of MCP with one session, whose calls are answered as it is told."""

    def __init__(self, said: Said, *, session: str | None = None) -> None:
        self._said = said
        self._session = {"mcp-session-id": session} if session else {}

    def __call__(self, request: Asked) -> Said:
        message: Mapping[str, Any] = json.loads(request.body or b"{}")
        if message.get("method") == "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "odd", "version": "1"},
            }
            return self._result(message, result, self._session)
        if "id" not in message:
            return Said(status=202)
        if message["method"] == "tools/list":
            tools = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(400)]
            return self._result(message, {"tools": tools, "nextCursor": "more"})
        body = self._said.body
        if isinstance(body, bytes):
            number = str(message["id"]).encode()
            return replace(self._said, body=body.replace(b'"ID"', number))
        return self._said

    def _result(
        self, message: Mapping[str, Any], result: Any, more: Mapping[str, str] | None = None
    ) -> Said:
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        headers = {"content-type": "application/json", **(more or {})}
        return Said(body=json.dumps(body).encode(), headers=headers)


async def called(
    said: Said, *, session: str | None = None, method: str = "call"
) -> WireFault | CallRefused:
    """Call a tool of such a server; return what is raised."""
    async with odd_server(Tools(said, session=session)) as (url, _):
        tools = McpSession(
            f"{url}/mcp",
            {"Authorization": f"Bearer {KEY}"},
            meter=Meter(),
            tls=ssl.create_default_context(),
            max_bytes=1 << 20,
            allowed=OWN_MACHINE_HOSTS,
        )
        await tools.open()
        try:
            with pytest.raises((WireFault, CallRefused)) as caught:
                await (tools.tools() if method == "list" else tools.call("t", {}))
        finally:
            await tools.close()
    return caught.value


@pytest.mark.parametrize("status", [200, 502])
async def test_a_tools_answer_without_end_is_not_read_to_it(status: int) -> None:
    fault = await called(Said(status=status, body=itertools.repeat(b" " * 65536)))
    assert isinstance(fault, WireFault)
    assert (fault.kind, fault.is_transient) == ("too_large", False)


async def test_a_stream_of_events_without_end_is_not_read_to_it() -> None:
    events = {"content-type": "text/event-stream"}
    endless = itertools.chain([b"data: "], itertools.repeat(b"x" * 65536))
    fault = await called(Said(body=endless, headers=events))
    assert isinstance(fault, WireFault)
    assert fault.may_be_done


async def test_a_list_of_tools_without_end_is_not_read_to_it() -> None:
    fault = await called(Said(), method="list")
    assert isinstance(fault, WireFault)
    assert fault.kind == "odd_answer"


@pytest.mark.parametrize(("session", "kind"), [("s", "session_lost"), (None, "bad_request")])
async def test_only_a_session_that_was_named_is_lost(session: str | None, kind: str) -> None:
    said = Said(status=400, body=b'{"detail": "no valid session for you"}')
    fault = await called(said, session=session)
    assert isinstance(fault, WireFault)
    assert fault.kind == kind


@pytest.mark.parametrize(("code", "status"), [(-32602, 200), (-32603, 200), (-32603, 500)])
async def test_a_key_that_a_tool_repeats_in_an_error_is_not_shown(code: int, status: int) -> None:
    error = {"code": code, "message": f"you sent {KEY}"}
    body = {"jsonrpc": "2.0", "id": "ID", "error": error}
    fault = await called(Said(status=status, body=json.dumps(body).encode()))
    assert KEY not in f"{fault} {fault.message}"
    assert "you sent [the API key]" in fault.message


async def test_the_model_sees_a_long_answer_cut() -> None:
    async with on_server(sizes=SMALL) as (_, provider):
        env = provider.make(TASK)
        await env.reset()
        call = next(expert(TASK))
        found = await env.call(call.name, call.arguments)
        assert len(found.text) > 100
        assert found.text[100:].startswith("\n[the answer has ")
        assert found.text.endswith("are cut]")
        await env.close()


async def test_a_mistake_of_our_own_is_told_with_where_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def read_wrongly() -> object:
        raise KeyError(KEY)

    retry = CallRetry(operation_s=1.0, meter=Meter(), load=Limiter(1))
    with pytest.raises(WireFault):
        await retry.call("reading", read_wrongly, may_repeat=lambda _: False)
    assert "in read_wrongly" in caplog.text


async def test_an_instance_at_an_inner_host_gets_neither_a_reset_nor_a_session() -> None:
    """Where an instance is, the platform says: that opens no host of the runner's network."""
    async with odd_server(Said(body={"success": True})) as (url, said):
        api = FleetApi(FleetAccount(base_url=url, key=KEY, allowed=NO_HOSTS))
        tools = McpSession(
            f"{url}/mcp",
            api.account.headers,
            meter=Meter(),
            tls=api.tls,
            max_bytes=1 << 20,
            allowed=NO_HOSTS,
        )
        try:
            for refused in (api.reset(instance(url)), tools.open()):
                with pytest.raises(WireFault, match="unreachable"):
                    await refused
        finally:
            await tools.close()
            await api.close()
        assert said == []
