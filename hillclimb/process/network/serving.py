"""Serves HTTP on a socket: for the command line, and inside another event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

BACKLOG = 2048
KEEP_ALIVE_S = 75
"""Idle seconds after which a connection is closed: longer than a model computes between two calls,
because a connection closed under a client's request looks like a fault."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free one.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def base_url(listener: socket.socket) -> str:
    """Return the address for clients, without a trailing slash."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _EmbeddedServer(uvicorn.Server):
    """A server in another application's event loop, which handles the signals itself."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving_here(config: uvicorn.Config, port: int = 0) -> AsyncIterator[str]:
    """Serve on a loopback port in this event loop and yield the base URL."""
    listener = listen("127.0.0.1", port)
    server = _EmbeddedServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield base_url(listener)
    finally:
        server.should_exit = True
        await task
        listener.close()
