"""HTTP transports and sockets that connect to checked addresses only.

Where the environment names a proxy for a server, the request goes through it: the host is checked
as far as this machine can resolve it, and which addresses the proxy reaches is its operator's
decision. No transport follows a redirect.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from hillclimb.process.network.abandoned import close_abandoned
from hillclimb.process.network.addresses import (
    AllowedHosts,
    HostRefused,
    UnknownHost,
    checked_addresses,
    checked_addresses_async,
)
from hillclimb.spec.hosts import is_loopback_host

LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20)
_HTTP = {"ws": "http", "wss": "https"}


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; None for a server of this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback_host(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(_HTTP.get(parts.scheme, parts.scheme)) or proxies.get("all")


async def check_server(url: str, allowed: AllowedHosts) -> None:
    """Check where a URL leads, without a connection; a name without an address passes.

    Raises:
        HostRefused: it leads to an address that is neither public nor allowed.
    """
    parts = urlsplit(url)
    with contextlib.suppress(UnknownHost):
        await checked_addresses_async(parts.hostname or "", parts.port or 443, allowed)


async def connected_socket(host: str, port: int, allowed: AllowedHosts) -> socket.socket:
    """Return a socket that is connected to a checked address of a host.

    Raises:
        OSError: as `checked_addresses`, or no address accepts the connection.
    """
    loop, failure = asyncio.get_running_loop(), OSError(f"{host} has no address")
    for address in await checked_addresses_async(host, port, allowed):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with contextlib.ExitStack() as unless_connected:
            one = unless_connected.enter_context(socket.socket(family, socket.SOCK_STREAM))
            one.settimeout(0)
            try:
                await loop.sock_connect(one, (address, port))
            except OSError as error:
                failure = error
                continue
            unless_connected.pop_all()
            return one
    raise failure


def direct_transport(
    allowed: AllowedHosts,
    *,
    tls: ssl.SSLContext | None = None,
    limits: Any = LIMITS,  # noqa: ANN401 - of httpx or httpx2
    http: Any = httpx,  # noqa: ANN401
    core: Any = httpcore,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Return an asynchronous transport of httpx (or of httpx2: `http`, `core`) without a proxy."""
    tls = tls or httpx.create_ssl_context()
    transport = http.AsyncHTTPTransport(verify=tls, limits=limits)
    transport._pool = core.AsyncConnectionPool(  # noqa: SLF001 - httpx itself takes no backend
        ssl_context=tls,
        max_connections=limits.max_connections,
        max_keepalive_connections=limits.max_keepalive_connections,
        keepalive_expiry=limits.keepalive_expiry,
        network_backend=_AsyncNetwork(allowed, core),
    )
    close_abandoned(transport._pool)  # noqa: SLF001
    return transport


@dataclass(slots=True)
class _AsyncNetwork:
    """A network backend of httpcore or httpcore2."""

    allowed: AllowedHosts
    core: Any

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Connect to the first checked address that accepts."""
        core, failure = self.core, self.core.ConnectError(f"{host} has no address")
        try:
            addresses = await checked_addresses_async(host, port, self.allowed)
        except (HostRefused, UnknownHost) as error:
            raise core.ConnectError(str(error)) from error
        for address in addresses:
            try:
                return await core.AnyIOBackend().connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except core.ConnectError as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Pause between tries of httpcore's own, of which there are none."""
        await asyncio.sleep(seconds)


@dataclass(slots=True)
class CheckedTransport(httpx.AsyncBaseTransport):
    """Transport of an `httpx.AsyncClient` for servers that somebody else named."""

    allowed: AllowedHosts
    tls: ssl.SSLContext = field(default_factory=httpx.create_ssl_context, repr=False)
    limits: httpx.Limits = field(default_factory=lambda: LIMITS)
    _direct: Any = field(init=False, repr=False)
    _proxied: dict[str, httpx.AsyncHTTPTransport] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Make the pool of the connections without a proxy."""
        self._direct = direct_transport(self.allowed, tls=self.tls, limits=self.limits)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request. Raises httpx.ConnectError for an address that is not allowed."""
        url = str(request.url)
        proxy = proxy_of(url)
        if proxy is None:
            response: httpx.Response = await self._direct.handle_async_request(request)
            return response
        try:
            await check_server(url, self.allowed)
        except HostRefused as error:
            raise httpx.ConnectError(str(error), request=request) from error
        if proxy not in self._proxied:
            through = httpx.AsyncHTTPTransport(verify=self.tls, limits=self.limits, proxy=proxy)
            close_abandoned(through._pool)  # noqa: SLF001
            self._proxied[proxy] = through
        return await self._proxied[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        for transport in (self._direct, *self._proxied.values()):
            await transport.aclose()


class BlockingTransport(httpx.HTTPTransport):
    """`CheckedTransport` of an `httpx.Client` for the server at one URL, and its redirects."""

    def __init__(self, allowed: AllowedHosts, url: str) -> None:
        super().__init__(proxy=proxy_of(url))
        self._allowed = allowed
        self._has_proxy = proxy_of(url) is not None
        if not self._has_proxy:
            self._pool = httpcore.ConnectionPool(
                ssl_context=httpx.create_ssl_context(), network_backend=_Network(allowed)
            )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request. Raises httpx.ConnectError for an address that is not allowed."""
        if self._has_proxy:
            try:
                with contextlib.suppress(UnknownHost):
                    checked_addresses(request.url.host, request.url.port or 443, self._allowed)
            except HostRefused as error:
                raise httpx.ConnectError(str(error), request=request) from error
        return super().handle_request(request)


@dataclass(slots=True)
class _Network(httpcore.NetworkBackend):
    """`_AsyncNetwork` for blocking connections."""

    allowed: AllowedHosts

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first checked address that accepts."""
        failure = httpcore.ConnectError(f"{host} has no address")
        try:
            addresses = checked_addresses(host, port, self.allowed)
        except (HostRefused, UnknownHost) as error:
            raise httpcore.ConnectError(str(error)) from error
        for address in addresses:
            try:
                return httpcore.SyncBackend().connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except httpcore.ConnectError as error:
                failure = error
        raise failure
