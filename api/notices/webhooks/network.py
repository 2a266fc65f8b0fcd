"""Connections to receivers: checked addresses only, and one deadline for a whole request."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpcore

from api.notices.webhooks.errors import NotDelivered
from hillclimb.process.network.addresses import (
    NO_HOSTS,
    OWN_MACHINE_HOSTS,
    AllowedHosts,
    HostRefused,
    UnknownHost,
    checked_addresses,
)

DEADLINE_S = 10.0


def post(url: str, headers: Mapping[str, str], body: bytes, *, allows_loopback: bool) -> int:
    """Send a POST request and return the status; the response's body is not read.

    Follows no redirect and uses no proxy. Raises NotDelivered without a response.
    """
    network = _CheckedNetwork(OWN_MACHINE_HOSTS if allows_loopback else NO_HOSTS)
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), DEADLINE_S)
    try:
        with (
            httpcore.ConnectionPool(network_backend=network, ssl_context=_certificates()) as pool,
            pool.stream(
                "POST",
                url,
                headers=list(headers.items()),
                content=body,
                extensions={"timeout": timeouts},
            ) as response,
        ):
            return response.status
    except (HostRefused, UnknownHost) as error:
        raise NotDelivered(str(error)) from None
    except httpcore.TimeoutException:
        raise NotDelivered(f"no response within {DEADLINE_S:g} s") from None
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        reason = str(error) or type(error).__name__
        raise NotDelivered(f"no response: {reason[:200]}") from None


@dataclass(slots=True)
class _CheckedNetwork(httpcore.NetworkBackend):
    """Connects to checked addresses, within the deadline of one request."""

    allowed: AllowedHosts
    ends_at: float = field(default_factory=lambda: time.monotonic() + DEADLINE_S)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first checked address that accepts."""
        backend, failure = httpcore.SyncBackend(), httpcore.ConnectError("no address")
        for address in checked_addresses(host, port, self.allowed):
            try:
                stream = backend.connect_tcp(
                    address, port, _left(self.ends_at), local_address, socket_options
                )
            except httpcore.ConnectError as error:
                failure = error
            else:
                return _Stream(stream, self.ends_at)
        raise failure


@dataclass(slots=True)
class _Stream(httpcore.NetworkStream):
    """A connection whose every operation ends with the request: slow bytes gain no time."""

    stream: httpcore.NetworkStream
    ends_at: float

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read up to `max_bytes`."""
        return self.stream.read(max_bytes, _left(self.ends_at))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of the buffer."""
        self.stream.write(buffer, _left(self.ends_at))

    def close(self) -> None:
        """Close the connection."""
        self.stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Begin TLS, with the certificate of the URL's host."""
        secured = self.stream.start_tls(ssl_context, server_hostname, _left(self.ends_at))
        return _Stream(secured, self.ends_at)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's own type
        """Return what httpcore asks about the socket."""
        return self.stream.get_extra_info(info)


def _left(ends_at: float) -> float:
    left = ends_at - time.monotonic()
    if left <= 0.0:
        raise httpcore.ReadTimeout("deadline")
    return left


@cache
def _certificates() -> ssl.SSLContext:
    return httpcore.default_ssl_context()
