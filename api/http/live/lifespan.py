"""Starts and stops the hub and its listener with the application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from api.http.live.hub import Hub
from api.http.live.leases import end_refused_streams
from api.http.live.listener import listen
from api.http.live.reader import TableReader
from api.http.live.shutdown import on_stop_signal
from api.tables.database import Database


@asynccontextmanager
async def run_hub(database: Database, database_url: str) -> AsyncIterator[Hub]:
    """Yield the process's hub while it listens; the stop signal and the exit end every stream."""
    hub = Hub(TableReader(database=database).read)
    listener = asyncio.create_task(listen(database_url, hub), name="listen")
    checker = asyncio.create_task(end_refused_streams(hub, database), name="check callers")
    try:
        with on_stop_signal(hub.close):
            yield hub
    finally:
        hub.close()
        for task in (listener, checker):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
