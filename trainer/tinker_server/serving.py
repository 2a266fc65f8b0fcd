"""Runs the server with uvicorn, for the command line or in a test's event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn

from hillclimb.process.network.serving import KEEP_ALIVE_S, base_url, listen, serving_here
from trainer.tinker_server.http.app import create_app
from trainer.tinker_server.service import TinkerService
from trainer.tinker_server.settings import TinkerServerSettings


def configure(service: TinkerService) -> uvicorn.Config:
    """Return uvicorn's configuration, which logs warnings only."""
    return uvicorn.Config(
        create_app(service),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


def serve(
    settings: TinkerServerSettings, host: str, port: int, announce: Callable[[str], None]
) -> None:
    """Serve until a signal; `announce` is given the base URL once connections are accepted.

    Raises:
        OSError: the address is taken or not this machine's.
        TrainerError: the model cannot be loaded.
    """
    service = TinkerService(settings)
    listener = listen(host, port)
    announce(base_url(listener))
    uvicorn.Server(configure(service)).run(sockets=[listener])


@asynccontextmanager
async def serving(
    settings: TinkerServerSettings, *, port: int = 0, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[str]:
    """Serve on a loopback port (0: any free one) in this event loop and yield the base URL."""
    service = TinkerService(settings, clock)
    try:
        async with serving_here(configure(service), port) as url:
            yield url
    finally:
        await service.close()
