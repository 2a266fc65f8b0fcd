"""Virtual time, as for rollouts: a wait takes no time."""

from __future__ import annotations

from tests.trainer.rollouts.conftest import clock, pytest_asyncio_loop_factories

__all__ = ["clock", "pytest_asyncio_loop_factories"]
