"""A bounded number of places, given first to those whom others wait for."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class Places:
    """At most `number` are held at once; of those waiting the lowest `turn` is next, then age.

    `asyncio.Semaphore` serves in order of arrival alone: an evaluation would stand behind every
    rollout that was begun ahead for later steps.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    @asynccontextmanager
    async def held(self, turn: int) -> AsyncIterator[None]:
        """Hold a place in the block."""
        await self._take(turn)
        try:
            yield
        finally:
            self._give()

    async def _take(self, turn: int) -> None:
        if self._free:
            self._free -= 1
            return
        given = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (turn, next(self._arrivals), given))
        try:
            await given
        except asyncio.CancelledError:
            # It may have been given the place in the moment in which it was cancelled.
            if given.done() and not given.cancelled():
                self._give()
            raise

    def _give(self) -> None:
        while self._waiting:
            _, _, next_one = heapq.heappop(self._waiting)
            if not next_one.done():
                next_one.set_result(None)
                return
        self._free += 1
