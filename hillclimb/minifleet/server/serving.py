"""Runs the server with uvicorn, for the command line or in a test's event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn

from hillclimb.minifleet.server.app import create_app
from hillclimb.minifleet.server.settings import MinifleetSettings
from hillclimb.process.network.serving import KEEP_ALIVE_S, serving_here


def configure(
    settings: MinifleetSettings, clock: Callable[[], float] = time.time
) -> uvicorn.Config:
    """Return uvicorn's configuration, which logs warnings only."""
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
    settings: MinifleetSettings, clock: Callable[[], float] = time.time
) -> AsyncIterator[str]:
    """Serve on a free loopback port in this event loop and yield the base URL."""
    async with serving_here(configure(settings, clock)) as url:
        yield url
