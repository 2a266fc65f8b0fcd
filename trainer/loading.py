"""Imports that take seconds: where they are made, and without looking for garbage meanwhile.

torch and transformers take five to seven seconds to import and vLLM ten, and every worker is a
process of its own. So a process imports what it makes, when it makes it, and nothing that another
process makes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage within: nothing that modules make is, and looking costs a fifth.

    Nor is what they made looked at later, which in a fork would copy its pages.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
