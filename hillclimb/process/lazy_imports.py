"""Imports that take seconds: where they are made, and without looking for garbage meanwhile.

torch and transformers take five to seven seconds to import and vLLM ten, and every worker is a
process of its own. So a process imports what it makes, when it makes it, and nothing that another
process makes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage within: nothing that modules make is, and looking costs a fifth.

    Where something was imported, what there is now is not looked at later either.
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
