"""A server of its own for each test, in the test's event loop, with a clock the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from tests.trainer.envs.fleet_server import SETTINGS, FleetServer, fleet_server


@dataclass(slots=True)
class Clock:
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server(clock: Clock) -> AsyncIterator[FleetServer]:
    """An account of three instances."""
    async with fleet_server(replace(SETTINGS, instance_limit=3), clock) as running:
        yield running
