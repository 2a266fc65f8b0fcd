"""Serves the miniature apps: for the command line, and inside a test's event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn

from trainer.envs.minifleet.server.app import create_app
from trainer.envs.minifleet.server.settings import ServerSettings
from trainer.serving import serving_here

KEEP_ALIVE_S = 75
"""Idle seconds after which a connection is closed: longer than a model thinks between two calls,
as closing one that a client is about to use looks like a fault."""


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
    async with serving_here(configure(settings, clock)) as url:
        yield url
