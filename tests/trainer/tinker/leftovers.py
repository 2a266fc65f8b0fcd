"""Collects the connections that Tinker's SDK never closes, where nobody is told of them."""

from __future__ import annotations

import gc
import sys
import warnings


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
