"""An asyncio semaphore that serves waiters by priority, then by arrival."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class PrioritySemaphore:
    """At most `number` are held at once; of those waiting the lowest `turn` is next, then age.

    `asyncio.Semaphore` serves in order of arrival alone: an evaluation would stand behind every
    rollout that was begun ahead for later steps.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    @asynccontextmanager
    async def acquire(self, turn: int) -> AsyncIterator[None]:
        """Hold a place in the block."""
        await self._acquire(turn)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, turn: int) -> None:
        if self._free:
            self._free -= 1
            return
        slot = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (turn, next(self._arrivals), slot))
        try:
            await slot
        except asyncio.CancelledError:
            # It may have been given the place in the moment in which it was cancelled.
            if slot.done() and not slot.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            _, _, waiter = heapq.heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
