"""A sync in which one side hangs ends by its own limit, not by the step's."""

from __future__ import annotations

import asyncio

import pytest

from trainer.errors import EngineError, WeightSyncMismatch
from trainer.weights.base import TimedSync


class Hanging:
    """A side never answers."""

    async def sync(self) -> None:
        await asyncio.Event().wait()


class Refusing:
    """The two sides differ."""

    async def sync(self) -> None:
        raise WeightSyncMismatch("a tensor differs")


async def test_a_side_that_hangs_ends_the_sync() -> None:
    with pytest.raises(EngineError, match=r"not in every engine after 0\.05 s"):
        await TimedSync(Hanging(), 0.05).sync()


async def test_what_a_sync_finds_out_is_passed_on() -> None:
    with pytest.raises(WeightSyncMismatch):
        await TimedSync(Refusing()).sync()
