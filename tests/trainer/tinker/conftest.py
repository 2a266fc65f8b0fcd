"""One server for the tests of a file: each of them has models of its own on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer.tinker.leftovers import collect_what_the_sdk_leaves
from tests.trainer.tinker.local import (
    SDK_LEAVES_SOCKETS,
    open_service,
    tinker_server,
    write_model,
)
from trainer.tinker.service import TinkerService


def pytest_itemcollected(item: pytest.Item) -> None:
    """What the SDK leaves open is its own affair."""
    item.add_marker(SDK_LEAVES_SOCKETS)


def pytest_sessionfinish() -> None:
    """pytest lets go of the last test's fixtures after those of its file have ended."""
    collect_what_the_sdk_leaves()


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left_to_collect_for_others() -> Iterator[None]:
    yield
    collect_what_the_sdk_leaves()


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
