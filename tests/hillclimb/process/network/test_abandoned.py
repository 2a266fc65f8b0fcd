"""A request that is cancelled leaves no connection behind, wherever the cancellation finds it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import httpcore
import httpcore2
import httpx
import httpx2
import pytest

from hillclimb.client.asynchronous.client import AsyncClient
from hillclimb.process.network.addresses import OWN_MACHINE_HOSTS
from hillclimb.process.network.connections import direct_transport
from hillclimb.stack.state.connection import Connection

MOST_STEPS = 40
"""Steps of the event loop after which a request to a silent server has long been sent."""
STEP_S = 0.001
"""The loop is blocked for this long before each, so that every answer it waits for has come."""
CLOSED_S = 10.0


@dataclass(slots=True)
class Silent:
    """A server that answers nothing at first, and counts its connections."""

    port: int = 0
    answers: bool = False
    tunnels: bool = False
    """It is a proxy, and answers the request for a tunnel alone."""
    num_accepted: int = 0
    num_open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_accepted += 1
        self.num_open += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if self.answers:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            if self.tunnels:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await reader.read()
        writer.close()
        self.num_open -= 1


@asynccontextmanager
async def silent_server() -> AsyncIterator[Silent]:
    silent = Silent()
    server = await asyncio.start_server(silent.serve, "127.0.0.1", 0)
    silent.port = server.sockets[0].getsockname()[1]
    try:
        yield silent
        await until_closed(silent)
    finally:
        server.close()


async def until_closed(silent: Silent) -> None:
    async with asyncio.timeout(CLOSED_S):
        while silent.num_open:  # noqa: ASYNC110 - the server learns it from its sockets
            await asyncio.sleep(0.01)


async def cancel_at_every_step(client: Any, url: str) -> None:
    for steps in range(MOST_STEPS):
        request = asyncio.create_task(client.get(url))
        await go_on(steps)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request


async def go_on(steps: int) -> None:
    for _ in range(steps):
        time.sleep(STEP_S)  # noqa: ASYNC251
        await asyncio.sleep(0)


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_program_that_stops_following_a_run_leaves_no_connection(
    scheme: str, monkeypatch: pytest.MonkeyPatch, *, proxied: bool
) -> None:
    """By a scope of anyio, which also cancels what is awaited after the cancellation."""

    async def follow(client: AsyncClient, scope: anyio.CancelScope) -> None:
        with scope:
            async for _ in client.follow("run_1"):
                pass

    async with silent_server() as silent:
        address = f"127.0.0.1:{silent.port}"
        if proxied:
            silent.tunnels = scheme == "https"
            monkeypatch.setenv(f"{scheme}_proxy", f"http://{address}")
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            address = "service.invalid"
        connection = Connection(url=f"{scheme}://{address}", api_key="key")
        async with AsyncClient(connection) as client, anyio.create_task_group() as tasks:
            for steps in range(MOST_STEPS):
                scope = anyio.CancelScope()
                tasks.start_soon(follow, client, scope)
                await go_on(steps)
                scope.cancel()
            await until_closed(silent)
            pools = [
                each._pool
                for each in (client._streams._transport, *client._streams._mounts.values())
                if each
            ]
            assert [each for pool in pools for each in pool.connections] == []
        assert silent.num_accepted > MOST_STEPS // 2


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("http", "core"), [(httpx, httpcore), (httpx2, httpcore2)])
async def test_a_request_cancelled_at_any_step_closes_its_connection(
    http: Any, core: Any, scheme: str
) -> None:
    transport = direct_transport(OWN_MACHINE_HOSTS, http=http, core=core)
    async with (
        silent_server() as silent,
        http.AsyncClient(transport=transport, timeout=None) as client,
    ):
        await cancel_at_every_step(client, f"{scheme}://127.0.0.1:{silent.port}/")
        assert silent.num_accepted > MOST_STEPS // 2
        await until_closed(silent)


async def test_a_pool_of_one_place_still_answers_after_requests_that_were_cancelled() -> None:
    one = httpx.Limits(max_connections=1, max_keepalive_connections=1)
    transport = direct_transport(OWN_MACHINE_HOSTS, limits=one)
    async with silent_server() as silent, httpx.AsyncClient(transport=transport) as client:
        url = f"http://127.0.0.1:{silent.port}/"
        await cancel_at_every_step(client, url)
        silent.answers = True
        assert (await client.get(url, timeout=CLOSED_S)).status_code == 204
