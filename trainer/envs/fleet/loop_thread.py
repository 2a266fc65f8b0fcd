"""An event loop in a thread of its own, for callers that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for blocking callers on one event loop.

    The loop also runs between two calls, so background tasks, such as the heartbeats of an
    instance, continue while the caller computes. The thread is a daemon: it does not keep a process
    alive that forgets `close`.
    """

    def __init__(self, name: str) -> None:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(_run_until_stopped(started)), name=name, daemon=True
        )
        self._thread.start()
        self._loop, self._stop = started.result()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; an interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Stop the loop, which cancels its remaining tasks, and wait for the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


async def _run_until_stopped(
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    stop = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()
