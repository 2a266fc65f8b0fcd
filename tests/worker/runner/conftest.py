"""The service that a runner's tests speak to."""

from collections.abc import Iterator

import pytest

from tests.worker.runner.service import ScriptedService


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    scripted = ScriptedService()
    yield scripted
    scripted.stop()
