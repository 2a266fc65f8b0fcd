"""Collects the connections that Tinker's SDK never closes, where nobody is told of them."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Generator
from pathlib import Path

import pytest


def collect_what_the_sdk_leaves() -> None:
    """Collect all of it: a client that goes sets another one free."""
    told, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(5):
                gc.collect()
    finally:
        sys.unraisablehook = told


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
