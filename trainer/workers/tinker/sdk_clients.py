"""Closes the HTTP clients that Tinker's SDK drops, on the event loop that their sockets belong to.

The SDK's clients work on the loop of its own thread, and close themselves when they are collected:
on the loop of whichever thread collects them. A transport that a foreign thread closes takes the
reader of its file descriptor off the SDK's loop, and where a new connection has that descriptor by
then, nobody reads its response: a call then had no answer until its timeout of 45 or 60 s.
"""

from __future__ import annotations

import asyncio

from tinker._base_client import AsyncHttpxClientWrapper
from tinker.lib.internal_client_holder import _internal_client_holder_thread_singleton


def close_on_own_loop() -> None:
    """Let every client of the SDK, dropped anywhere, be closed on the SDK's loop."""
    AsyncHttpxClientWrapper.__del__ = _close  # type: ignore[method-assign]


def _close(client: AsyncHttpxClientWrapper) -> None:
    loop = _internal_client_holder_thread_singleton.get_loop()
    if client.is_closed or not loop.is_running():
        return
    loop.call_soon_threadsafe(lambda: asyncio.ensure_future(client.aclose(), loop=loop))
