"""What holds for all tests of the trainer: one Ray token, and no variables left by other modules.

Ray reads its environment once, when it is first imported, and vLLM's tests import it long before
those that start a cluster: hence the token is set here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = "0123456789abcdef" * 4


@pytest.fixture(autouse=True, scope="module")
def _variables_end_with_their_module() -> Iterator[None]:
    """An engine in this process sets some (`HF_HUB_OFFLINE`) that others must not see."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
