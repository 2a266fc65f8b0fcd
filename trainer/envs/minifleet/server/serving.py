"""Runs a server on a socket: for the command line, and inside a test's event loop."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from trainer.envs.minifleet.server.app import create_app
from trainer.envs.minifleet.server.settings import ServerSettings

BACKLOG = 2048
KEEP_ALIVE_S = 75
"""Idle seconds after which a connection is closed: longer than a model thinks between two calls,
as closing one that a client is about to use looks like a fault."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free one.

    Raises:
        OSError: the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def base_url(listener: socket.socket) -> str:
    """Return what `FLEET_BASE_URL` is set to, without a slash at its end."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Guest(uvicorn.Server):
    """A server in somebody else's event loop: signals are its host's business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def configure(settings: ServerSettings, clock: Callable[[], float] = time.time) -> uvicorn.Config:
    """Return how uvicorn serves these settings; it logs warnings only."""
    return uvicorn.Config(
        create_app(settings, clock),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


@asynccontextmanager
async def serving(
    settings: ServerSettings, clock: Callable[[], float] = time.time
) -> AsyncIterator[str]:
    """Serve on a free loopback port in this event loop and yield the base URL."""
    listener = listen("127.0.0.1", 0)
    server = _Guest(configure(settings, clock))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield base_url(listener)
    finally:
        server.should_exit = True
        await task
        listener.close()
