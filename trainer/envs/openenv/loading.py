"""Imports openenv-core's client without its server, whose dependencies conflict with vLLM's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

_CORE = "openenv.core"


@contextmanager
def client_alone() -> Iterator[None]:
    """Skip the `__init__` of `openenv.core` when its modules are imported in the block.

    In openenv-core 0.3.0 it imports the server: FastAPI and fastmcp, which requires mcp below 2,
    whereas vLLM requires mcp 2. The client needs websockets, requests and pydantic only. Imports
    after the block find the ordinary package.

    Raises:
        ModuleNotFoundError: openenv-core is not installed.
    """
    if _CORE in sys.modules:
        yield
        return
    spec = find_spec("openenv")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("openenv-core is not installed", name="openenv")
    bare = ModuleType(_CORE)
    bare.__path__ = [str(Path(spec.submodule_search_locations[0]) / "core")]
    sys.modules[_CORE] = bare
    try:
        yield
    finally:
        del sys.modules[_CORE]
