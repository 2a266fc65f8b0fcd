"""A state directory with tiny services."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.stack.state.directory import StateDirectory
from tests.hillclimb.stack.tiny import TinyStack


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[TinyStack]:
    stack = TinyStack(StateDirectory((tmp_path / "state").resolve()))
    yield stack
    stack.clear()
