"""Closes the HTTP clients that Tinker's SDK drops, on the event loop that their sockets belong to.

The SDK never closes its clients: they go when they are collected, in cycles, by whichever thread
collects. The sockets of their transports are then closed in that thread, and the number of a file
descriptor is free for a new connection, while the SDK's loop still has the old transport to close.
Closing it takes the reader off that number, so nobody reads the new connection's response: a call
had no answer until its timeout of 45 or 60 s. Here a client's transports therefore outlive it until
the SDK's loop has closed them.
"""

from __future__ import annotations

import asyncio
import weakref

import httpx
from tinker._base_client import AsyncAPIClient, AsyncHttpxClientWrapper
from tinker.lib.internal_client_holder import _internal_client_holder_thread_singleton

_sdk_init = AsyncAPIClient.__init__


def close_on_own_loop() -> None:
    """Let every client that the SDK makes from here on be closed on the SDK's loop."""
    AsyncAPIClient.__init__ = _init  # type: ignore[method-assign, assignment]
    AsyncHttpxClientWrapper.__del__ = _nothing  # type: ignore[method-assign]


def _init(client: AsyncAPIClient, **options: object) -> None:
    _sdk_init(client, **options)  # type: ignore[arg-type]
    # The finalizer refers to the HTTP client, which is therefore no garbage when `client` is.
    weakref.finalize(client, _close, client._client).atexit = False  # noqa: SLF001


def _close(http: httpx.AsyncClient) -> None:
    """Close it on the SDK's loop. Any thread calls this, within a garbage collection."""
    loop = _internal_client_holder_thread_singleton.get_loop()
    if not http.is_closed and loop.is_running():
        loop.call_soon_threadsafe(lambda: asyncio.ensure_future(http.aclose(), loop=loop))


def _nothing(_: AsyncHttpxClientWrapper) -> None:
    """Close nothing: the SDK would close the client on the loop of the collecting thread."""
