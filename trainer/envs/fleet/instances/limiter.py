"""How many instances are held at once: additive increase, multiplicative decrease.

Each environment has a limit that grows by one for each round of answered operations and shrinks by
a quarter, at most once a cooldown, after a timeout or a rate limit. All of them share the account's
limit: when the platform says that it is met, we keep to what it leaves us, for a cooldown; what
others of the account hold is not ours to press.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from trainer.envs.fleet.faults import INSTANCE_LIMIT, WireFault

DECREASE = 0.75
COOLDOWN_S = 5.0
"""Between two decreases: what was in flight before the first says nothing new."""
FIRST_HOLD_S, LONGEST_HOLD_S = 0.1, 5.0
"""Pauses before an instance is asked for again where others of the account hold all of them."""


@dataclass(slots=True)
class Limiter:
    """Slots for instances, at most `bound`; `limit` is how many there are now."""

    bound: int
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    limit: float = field(init=False)
    in_use: int = field(default=0, init=False)
    """Slots given out: episodes that hold an instance, or are about to ask for one."""
    held: int = field(default=0, init=False)
    """Of those, how many have their instance; whoever makes and deletes instances counts."""
    num_limits: int = field(default=0, init=False)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque, init=False)
    _calm_until: float = field(default=0.0, init=False)
    _held_until: float = field(default=0.0, init=False)
    _hold_s: float = field(default=FIRST_HOLD_S, init=False)

    def __post_init__(self) -> None:
        """Begin at the bound: a refusal is cheap, an idle slot is not."""
        self.limit = float(self.bound)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        await self._acquire()
        try:
            yield
        finally:
            self.in_use -= 1
            self._wake()

    def went_well(self) -> None:
        """Grow by a share of one: by one after a round of answers."""
        self._hold_s = FIRST_HOLD_S
        if self.clock() >= self._calm_until and self.limit < self.bound:
            self.limit = min(float(self.bound), self.limit + 1.0 / self.limit)
            self._wake()

    def overloaded(self, fault: WireFault) -> None:
        """Shrink: to what is held where the account is full, else by a quarter."""
        now = self.clock()
        if fault.kind == INSTANCE_LIMIT:
            self.num_limits += 1
            self._shrink(max(1.0, float(self._left_to_us(fault))))
            self._calm_until = now + COOLDOWN_S
            if not self.held and now >= self._held_until:
                # Others hold all there are: look again after a while. Else ours end by themselves.
                self._held_until = now + self._hold_s * self.rng.uniform(0.5, 1.0)
                self._hold_s = min(2.0 * self._hold_s, LONGEST_HOLD_S)
        elif now >= self._calm_until:
            self._shrink(max(1.0, DECREASE * self.limit))
            self._calm_until = now + COOLDOWN_S

    def _left_to_us(self, fault: WireFault) -> int:
        """How many instances we may hold, from what the platform says of its account."""
        running, limit = (fault.detail.get(k) for k in ("running_instances", "instance_limit"))
        if not isinstance(running, int) or not isinstance(limit, int):
            return self.held
        # Who was refused holds a place until it gives it back, hence one less.
        return min(limit - max(0, running - self.in_use), self.in_use - 1)

    def _shrink(self, limit: float) -> None:
        self.limit = min(self.limit, limit)

    async def _acquire(self) -> None:
        try:
            while True:
                hold = self._held_until - self.clock()
                if self.in_use >= int(self.limit):
                    await self._woken()
                elif hold > 0.0:
                    await asyncio.sleep(hold)
                else:
                    self.in_use += 1
                    return
        except asyncio.CancelledError:
            # It may have been woken for a slot that it takes no more: the next in line gets it.
            self._wake()
            raise

    async def _woken(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _wake(self) -> None:
        """Let as many look again as there are free slots."""
        free = int(self.limit) - self.in_use
        while free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1


@dataclass(frozen=True, slots=True)
class Share:
    """An environment's places within those of the account."""

    environment: Limiter
    account: Limiter

    @property
    def limit(self) -> int:
        """Instances of the environment that may be held now."""
        return int(min(self.environment.limit, self.account.limit))

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a place of both and hold it."""
        async with self.environment.slot(), self.account.slot():
            yield

    def went_well(self) -> None:
        """Let both grow."""
        self.environment.went_well()
        self.account.went_well()

    def overloaded(self, fault: WireFault) -> None:
        """Shrink the one that the fault tells of."""
        (self.account if fault.kind == INSTANCE_LIMIT else self.environment).overloaded(fault)
