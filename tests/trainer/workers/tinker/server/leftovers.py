"""Ends the sessions and collects the connections that Tinker's SDK leaves to the process's end.

A session's heartbeat task refers to its client, so no garbage collection ends it. Its retries draw
from `random` in a thread, which hypothesis takes for a strategy that does (a flaky failure of
whatever test runs then).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the control plane's environment collects the e2e tests, and has no SDK
    from tinker.lib.internal_client_holder import InternalClientHolder


def collect_what_the_sdk_leaves() -> None:
    """Collect all of it: a client that goes sets another one free."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(5):
                _end_sessions()
                gc.collect()
                # A client that is collected lives on in a task that ends its session.
                _wait_for_the_thread()
    finally:
        sys.unraisablehook = hook


def holders() -> list[InternalClientHolder]:
    """Return the SDK's clients that are still referenced."""
    return [item for item in gc.get_objects() if type(item).__name__ == "InternalClientHolder"]


def _end_sessions() -> None:
    """End all that runs in the SDK's thread, heartbeats and telemetry, and wait for it.

    `InternalClientHolder.close` does not wait: on a busy machine the thread still referred to its
    sockets when they were to be collected, and a test of another folder was blamed for them.
    """
    for holder in holders():
        holder.close()  # type: ignore[no-untyped-call]
    _wait_for_the_thread()


def _wait_for_the_thread() -> None:
    """Wait until the SDK's thread, where one runs, has ended what it was asked for until now."""
    module = sys.modules.get("tinker.lib.internal_client_holder")
    thread = module and module._internal_client_holder_thread_singleton
    if thread is not None and thread._started:
        work = asyncio.run_coroutine_threadsafe(_cancel_other_tasks(), thread.get_loop())
        work.result(timeout=60.0)


async def _cancel_other_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def collect_after_each_file_of(folder: Path) -> Callable[..., Generator[None, object, object]]:
    """A `pytest_runtest_protocol` that leaves nothing of a folder's files for others to collect.

    A hook, and not a fixture: pytest lets go of the last test's fixtures after all have ended.
    """

    @pytest.hookimpl(wrapper=True)
    def protocol(
        item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        done = yield
        if folder in item.path.parents and (nextitem is None or nextitem.path != item.path):
            collect_what_the_sdk_leaves()
        return done

    return protocol
