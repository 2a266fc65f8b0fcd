"""Ends the sessions and collects the connections that Tinker's SDK leaves to the process's end.

A session's heartbeat task refers to its client, so no garbage collection ends it. Its retries draw
from `random` in a thread, which hypothesis takes for a strategy that does (a flaky failure of
whatever test runs then).
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Generator
from pathlib import Path

import pytest


def collect_what_the_sdk_leaves() -> None:
    """Collect all of it: a client that goes sets another one free."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            _end_sessions()
            for _ in range(5):
                gc.collect()
    finally:
        sys.unraisablehook = hook


def _end_sessions() -> None:
    for each in gc.get_objects():
        if type(each).__name__ == "InternalClientHolder":
            each.close()


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
