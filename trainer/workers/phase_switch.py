"""Engines and learner that take turns on the same GPUs, one step after the other.

    sample -> engines sleep -> learner takes its state back -> step -> learner parks its state
    -> engines wake their weights -> sync -> engines wake their caches -> sample

Engines are asleep when the learner loads its model and its checkpoint: the first sync wakes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol

from trainer.engines.base import Sleeps
from trainer.errors import EngineError
from trainer.weights.base import SYNC_LIMIT_S, WeightSync


class Parks(Protocol):
    """A learner that can leave its GPUs, but for the weights of record."""

    async def park(self) -> None:
        """Move the optimizer's state into the machine's memory, and free what nothing uses."""
        ...

    async def unpark(self) -> None:
        """Take the optimizer's state back."""
        ...


class PhaseSwitch:
    """Says whose turn on the GPUs it is, and changes it; every failure ends the attempt."""

    def __init__(
        self,
        learner: Parks,
        engines: Sequence[Sleeps],
        *,
        level: int,
        limit_s: float = SYNC_LIMIT_S,
    ) -> None:
        """The engines are asleep; `level` is that of `engine.sleep_level`."""
        self._learner, self._engines, self._level = learner, tuple(engines), level
        self._limit_s = limit_s
        self._are_asleep = True
        self._is_parked = False

    async def to_learner(self) -> None:
        """Return once the GPUs are the learner's, also if they were before.

        Raises:
            EngineError: an engine failed, or did not fall asleep in time.
            LearnerError: a rank failed.
        """
        await self._put_to_sleep()
        if self._is_parked:
            await self._learner.unpark()
            self._is_parked = False

    async def to_engines(self, sync: WeightSync) -> None:
        """Sync the weights, and return once every engine samples with them.

        Raises:
            EngineError: an engine failed, or did not wake in time.
            LearnerError: a rank failed.
            WeightSyncMismatch: as `WeightSync.sync`.
        """
        await self._put_to_sleep()
        self._is_parked = True
        await self._learner.park()
        await self._all("wake", (engine.wake_weights() for engine in self._engines))
        await sync.sync()
        # Pieces of weights on their way are still in the memory that the caches are about to take.
        await self._learner.park()
        await self._all("wake", (engine.wake_cache() for engine in self._engines))
        self._are_asleep = False

    async def _put_to_sleep(self) -> None:
        if not self._are_asleep:
            await self._all("fall asleep", (each.sleep(self._level) for each in self._engines))
            self._are_asleep = True

    async def _all(self, what: str, calls: Iterable[Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await asyncio.gather(*calls)
        except TimeoutError:
            raise EngineError(
                f"the engines did not {what} in {self._limit_s:g} s, beside a learner on their GPUs"
            ) from None


class SwitchedSync:
    """A weight sync that gives the GPUs back to the engines."""

    def __init__(self, switch: PhaseSwitch, sync: WeightSync) -> None:
        self._switch, self.inner = switch, sync

    async def sync(self) -> None:
        """See `WeightSync.sync`."""
        await self._switch.to_engines(self.inner)
