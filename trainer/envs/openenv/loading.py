"""openenv-core's client without its server, which the trainer's environment cannot hold."""

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
    """Let modules of `openenv.core` be imported within, without what stands in its `__init__`.

    In openenv-core 0.3.0 that is the server: FastAPI and fastmcp, which wants mcp below 2 where
    vLLM wants 2. The client needs websockets, requests and pydantic. What is imported afterwards
    finds the package as it is.

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
