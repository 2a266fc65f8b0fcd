"""Closes the connections of requests that are cancelled while they connect.

httpcore (1.0.9, and httpcore2 2.16.2) leaves two kinds behind. A request cancelled during the TLS
handshake closes no socket. One cancelled between the connection and its first byte leaves the
connection in the pool, where it counts, serves no other request and is never closed: a pool of 100
answers nothing after 100 of them. A deadline that passes on a busy machine does either.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx

_UNUSED = ", NEW, Request Count: 0"
"""End of the description of a connection that has carried nothing: no other request waits."""


def close_abandoned(pool: Any) -> None:  # noqa: ANN401 - of httpcore or httpcore2
    """Let a pool close the connections of cancelled requests."""
    create = pool.create_connection
    pool.create_connection = lambda origin: _Connection(create(origin))
    pool._network_backend = _Network(pool._network_backend)  # noqa: SLF001 - see `direct_transport`


def close_abandoned_of(client: httpx.AsyncClient) -> None:
    """Let all pools of a client close the connections of cancelled requests, proxies' too.

    For clients whose transports httpx chose itself: it takes no proxy from the environment where it
    is given a transport.
    """
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001
        if isinstance(transport, httpx.AsyncHTTPTransport):
            close_abandoned(transport._pool)  # noqa: SLF001


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection of a pool, which keeps some of them in sets."""

    _inner: Any
    _is_abandoned: bool = False

    async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401
        try:
            return await self._inner.handle_async_request(request)
        except BaseException:
            if self._inner.info().endswith(_UNUSED) or not _is_through(self._inner):
                # A tunnel whose first connection was never begun would not count as closed.
                self._is_abandoned = True
                await self._inner.aclose()
            raise

    def is_closed(self) -> bool:
        return self._is_abandoned or bool(self._inner.is_closed())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)


def _is_through(connection: Any) -> bool:  # noqa: ANN401
    """Tell whether a tunnel through a proxy has its TLS; other connections are no tunnels."""
    return bool(getattr(connection, "_connected", True))


@dataclass(slots=True)
class _Network:
    """A network backend whose connections close when their TLS handshake is cancelled."""

    _inner: Any

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Any:  # noqa: ANN401
        return _Stream(
            await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        )

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


@dataclass(slots=True)
class _Stream:
    """A connected stream, before TLS."""

    _inner: Any

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> Any:  # noqa: ANN401
        try:
            return await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self._inner.aclose()
            raise

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)
