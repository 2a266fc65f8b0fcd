"""An asyncio semaphore that serves waiters by priority, then by arrival."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class PrioritySemaphore:
    """Semaphore of `number` slots; the waiter with the lowest `turn` is next, then the oldest.

    `asyncio.Semaphore` serves in order of arrival alone: an evaluation would wait for every
    rollout that was started ahead for later steps.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    @asynccontextmanager
    async def acquire(self, turn: int) -> AsyncIterator[None]:
        """Hold a slot within the block."""
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
            # A release may have assigned the slot just before the cancellation: pass it on.
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
