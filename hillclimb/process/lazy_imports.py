"""Slow imports: made only by the process that needs them, with the garbage collector paused.

torch and transformers take five to seven seconds to import and vLLM ten, and every worker is a
process of its own. So a process imports a library when it first needs it, and never one that only
another process needs.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused_import() -> Iterator[None]:
    """Pause the garbage collector within: importing creates no garbage, and scans cost a fifth.

    After an import all present objects are frozen, so that later collections skip them.
    """
    was_on, num_modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > num_modules:
            gc.freeze()
        if was_on:
            gc.enable()
