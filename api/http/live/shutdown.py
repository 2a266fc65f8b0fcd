"""Ends streams at the stop signal of the process.

The server waits for open responses before it runs the application's shutdown, and a stream is open
until its run ends: streams must react to the signal itself.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_stop_signal(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the running loop when SIGINT or SIGTERM arrives, before the server acts.

    Does nothing off the main thread or where no server handles signals (tests).
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    servers = {number: signal.getsignal(number) for number in SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)
        server = servers[signal.Signals(number)]
        if callable(server):
            server(number, frame)

    handled = [number for number, server in servers.items() if _is_a_servers(server)]
    for number in handled:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, servers[number])


def _is_a_servers(handler: object) -> bool:
    return callable(handler) and handler is not signal.default_int_handler
