"""Serves a desk: for the command line, and inside a test's event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn

from trainer.serving import base_url, listen, serving_here
from trainer.tinker_server.app import create_app
from trainer.tinker_server.desk import Desk
from trainer.tinker_server.settings import ServerSettings

KEEP_ALIVE_S = 75
"""Idle seconds after which a connection is closed."""


def configure(desk: Desk) -> uvicorn.Config:
    """Return how uvicorn serves a desk; it logs warnings only."""
    return uvicorn.Config(
        create_app(desk),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


def serve(settings: ServerSettings, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until a signal; `announce` is given the base URL once connections are accepted.

    Raises:
        OSError: the address is taken or not this machine's.
        TrainerError: the model cannot be loaded.
    """
    desk = Desk(settings)
    listener = listen(host, port)
    announce(base_url(listener))
    uvicorn.Server(configure(desk)).run(sockets=[listener])


@asynccontextmanager
async def serving(
    settings: ServerSettings, *, port: int = 0, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[str]:
    """Serve on a loopback port (0: any free one) in this event loop and yield the base URL."""
    desk = Desk(settings, clock)
    try:
        async with serving_here(configure(desk), port) as url:
            yield url
    finally:
        await desk.close()
