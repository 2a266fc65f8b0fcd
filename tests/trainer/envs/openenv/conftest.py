from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer.envs.openenv.servers import Served, countdown_server, search_server


@pytest.fixture(scope="session")
def search() -> Iterator[Served]:
    served = search_server()
    yield served
    served.stop()


@pytest.fixture(scope="module")
def countdown() -> Iterator[Served]:
    served = countdown_server()
    yield served
    served.stop()
