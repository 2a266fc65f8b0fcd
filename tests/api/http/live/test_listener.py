"""The listener's connection is lost, and its descriptor's number is somebody else's at once."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import psycopg
import pytest

from api.http.live.listener import _forward


class Lost:
    """A connection whose server is gone: libpq finds out while it reads, and closes its socket."""

    def __init__(self) -> None:
        self._own, self._servers = socket.socketpair()
        self._servers.send(b"a last message")
        self.socket = self._own.fileno()
        self.next: tuple[socket.socket, ...] = ()

    def consume_input(self) -> None:
        self._own.close()
        # An HTTP client connects: the lowest free number is that of the closed descriptor.
        self.next = socket.socketpair()
        assert self.next[0].fileno() == self.socket
        loop: Any = asyncio.get_running_loop()
        self.next[0].setblocking(False)
        loop.call_soon(loop._make_socket_transport, self.next[0], asyncio.Protocol())
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def notifies(self) -> None: ...


class Deaf:
    """Nobody is woken."""

    def wake(self, run_id: str) -> None: ...

    def wake_all(self) -> None: ...


@pytest.mark.asyncio
async def test_a_loss_is_the_databases_error_though_a_client_has_the_descriptor_by_then() -> None:
    """Another error would end the listener: no stream of this process would move again."""
    lost = Lost()
    with pytest.raises(psycopg.OperationalError, match="closed the connection"):
        async with asyncio.timeout(5.0):
            await _forward(lost, Deaf(), 60.0)  # type: ignore[arg-type]
    loop: Any = asyncio.get_running_loop()
    assert lost.next[0].fileno() in loop._transports, "the client's transport is left alone"
    loop._transports[lost.next[0].fileno()].close()
    lost.next[1].close()
    lost._servers.close()
