"""Connections go to checked addresses: no second resolution, no redirect elsewhere."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest

from hillclimb.process.network.addresses import (
    NO_HOSTS,
    OWN_MACHINE_HOSTS,
    AllowedHosts,
    HostRefused,
)
from hillclimb.process.network.connections import (
    BlockingTransport,
    CheckedTransport,
    check_server,
    connected_socket,
    proxy_of,
)

Resolve = Callable[..., None]
BY_NAME = AllowedHosts.parse("inner.example")


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Let names have these addresses: one tuple per resolution, the last one from then on."""
    real = socket.getaddrinfo

    def to(*answers: tuple[str, ...]) -> None:
        rest = list(answers)

        def getaddrinfo(host: str, port: Any, *args: Any, **options: Any) -> Any:
            if not str(host).endswith(".example"):
                return real(host, port, *args, **options)
            addresses = rest.pop(0) if len(rest) > 1 else rest[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    return to


@contextmanager
def serving(location: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """Serve on loopback: the port, and the hosts that requests named."""
    hosts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hosts.append(self.headers["Host"])
            self.send_response(302 if location else 200)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"inside")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, hosts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def get(url: str, allowed: AllowedHosts, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=CheckedTransport(allowed), **options) as client:
        return await client.get(url)


async def get_blocking(url: str, allowed: AllowedHosts, **options: Any) -> httpx.Response:
    with httpx.Client(transport=BlockingTransport(allowed, url), **options) as client:
        return await asyncio.to_thread(client.get, url)


async def test_an_address_that_is_not_allowed_gets_no_connection() -> None:
    with serving() as (port, hosts):
        for host in ("127.0.0.1", "localhost"):
            url = f"http://{host}:{port}/"
            with pytest.raises(httpx.ConnectError, match="has an address that is not public"):
                await get(url, NO_HOSTS)
            with pytest.raises(httpx.ConnectError, match="has an address that is not public"):
                await get_blocking(url, NO_HOSTS)
            with pytest.raises(HostRefused):
                await connected_socket(host, port, NO_HOSTS)
            with pytest.raises(HostRefused):
                await check_server(url, NO_HOSTS)
        assert hosts == []
        assert (await get(f"http://127.0.0.1:{port}/", OWN_MACHINE_HOSTS)).text == "inside"
        assert (await get_blocking(f"http://127.0.0.1:{port}/", OWN_MACHINE_HOSTS)).text == "inside"


async def test_one_private_address_among_public_ones_refuses_the_host(resolve: Resolve) -> None:
    resolve(("93.184.216.34", "10.0.0.7"))
    with pytest.raises(httpx.ConnectError, match=r"inner\.example has an address"):
        await get("http://inner.example/", NO_HOSTS)


async def test_a_name_that_leads_elsewhere_at_the_second_look_is_refused_then(
    resolve: Resolve,
) -> None:
    """DNS rebinding: the check before the run sees a public address, the connection does not."""
    with serving() as (port, hosts):
        for ask in (get, get_blocking):
            resolve(("93.184.216.34",), ("127.0.0.1",))
            url = f"http://inner.example:{port}/"
            await check_server(url, NO_HOSTS)
            with pytest.raises(httpx.ConnectError, match="not public"):
                await ask(url, NO_HOSTS)
        resolve(("93.184.216.34",), ("127.0.0.1",))
        await check_server(f"http://inner.example:{port}", NO_HOSTS)
        with pytest.raises(HostRefused):
            await connected_socket("inner.example", port, NO_HOSTS)
        assert hosts == []


async def test_a_connection_goes_to_what_was_checked(resolve: Resolve) -> None:
    """One resolution: were the name resolved again, the request would leave this machine."""
    with serving() as (port, hosts):
        for ask in (get, get_blocking):
            resolve(("127.0.0.1",), ("192.0.2.1",))
            response = await ask(f"http://inner.example:{port}/", BY_NAME, timeout=2.0)
            assert response.text == "inside"
        assert hosts == [f"inner.example:{port}"] * 2
        resolve(("127.0.0.1",), ("192.0.2.1",))
        with await connected_socket("inner.example", port, BY_NAME) as connected:
            assert connected.getpeername() == ("127.0.0.1", port)


async def test_a_redirect_is_not_followed_and_where_a_client_follows_it_is_checked(
    resolve: Resolve,
) -> None:
    with serving() as (inner, hosts), serving(f"http://127.0.0.1:{inner}/") as (outer, _):
        resolve(("127.0.0.1",))
        url = f"http://inner.example:{outer}/"
        assert (await get(url, BY_NAME)).status_code == 302
        with pytest.raises(httpx.ConnectError, match=r"127\.0\.0\.1 has an address"):
            await get(url, BY_NAME, follow_redirects=True)
        with pytest.raises(httpx.ConnectError, match=r"127\.0\.0\.1 has an address"):
            await get_blocking(url, BY_NAME, follow_redirects=True)
        assert hosts == []


async def test_a_proxy_of_the_environment_is_used_and_opens_no_private_host(
    resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as (port, hosts):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        resolve(("93.184.216.34",))
        assert (await get("http://public.example/", NO_HOSTS)).text == "inside"
        assert (await get_blocking("http://public.example/", NO_HOSTS)).text == "inside"
        assert hosts == ["public.example"] * 2
        for host in ("10.0.0.7", "inner.example"):
            resolve(("10.0.0.7",))
            with pytest.raises(httpx.ConnectError, match="not public"):
                await get(f"http://{host}/", NO_HOSTS)
            with pytest.raises(httpx.ConnectError, match="not public"):
                await get_blocking(f"http://{host}/", NO_HOSTS)
        assert hosts == ["public.example"] * 2
        assert proxy_of("ws://public.example/ws") == f"http://127.0.0.1:{port}"
        assert proxy_of(f"http://localhost:{port}") is None
