"""One server for the tests of a file: each of them has models of its own on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.workers.tinker.server.leftovers import collect_after_each_file_of
from tests.trainer.workers.tinker.server.local import (
    SDK_LEAVES_SOCKETS,
    open_service,
    tinker_server,
    write_model,
)
from trainer.workers.tinker.sdk_clients import close_on_own_loop
from trainer.workers.tinker.service import TELEMETRY, TinkerService

close_on_own_loop()
"""For the tests that use the SDK without our service, too."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """What the SDK leaves open is its own affair."""
    item.add_marker(SDK_LEAVES_SOCKETS)


pytest_runtest_protocol = collect_after_each_file_of(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _without_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run has it. A client with telemetry is never collected, even once its task is over."""
    monkeypatch.setenv(TELEMETRY, "0")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("tinker")
    with tinker_server(write_model(root / "model"), root / "state", max_models=32) as found:
        yield found


@pytest.fixture
def service(url: str) -> Iterator[TinkerService]:
    opened = open_service(url)
    yield opened
    opened.close()
