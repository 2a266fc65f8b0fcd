"""Runs work in a thread that the end of the process does not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def start_in_daemon_thread(work: Callable[[], _T], *, name: str) -> Future[_T]:
    """Call `work` in a thread of its own; the future has its result or its error.

    Unlike with `asyncio.to_thread`, a call that nobody needs any more and that cannot be ended, of
    a dead server or for a large file, does not hold up the end of the process.
    """
    future: Future[_T] = Future()
    # From now on it cannot be cancelled, so there is one to set the result of.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, daemon=True, name=name).start()
    return future
