"""Limit of concurrent instances: additive increase, multiplicative decrease.

Each environment has a limit that grows by one for each round of answered operations and shrinks by
a quarter, at most once a cooldown, after a timeout or a rate limit. All share the account's limit:
when the platform reports it as reached, the limit becomes what other clients of the account leave,
for a cooldown.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from trainer.envs.fleet.wire.faults import INSTANCE_LIMIT, WireFault

DECREASE = 0.75
COOLDOWN_S = 5.0
"""Least time between two decreases: operations in flight at the first show nothing new."""
FIRST_BLOCK_S, LONGEST_BLOCK_S = 0.1, 5.0
"""Pauses before another creation where other clients of the account have all instances."""
LONGEST_HOLD_S = 600.0
"""Most seconds that a `Retry-After` is waited out; then the platform gets another request."""


@dataclass(slots=True)
class Limiter:
    """Slots for instances: at most `bound`, currently `limit`."""

    bound: int
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    limit: float = field(init=False)
    in_use: int = field(default=0, init=False)
    """Slots in use: by episodes with an instance, or about to create one, and by instances that are
    still to be deleted."""
    num_owned: int = field(default=0, init=False)
    """Slots with an instance; `FleetInstances` counts them."""
    num_limits: int = field(default=0, init=False)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque, init=False)
    _cooldown_until: float = field(default=0.0, init=False)
    _blocked_until: float = field(default=0.0, init=False)
    _block_s: float = field(default=FIRST_BLOCK_S, init=False)

    def __post_init__(self) -> None:
        """Start at the bound: a refusal is cheap, an idle slot is not."""
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

    def occupy(self) -> Callable[[], None]:
        """Take a slot at once for an instance whose episode has gone, and return its release.

        The episode gives its own slot back while the instance still runs, or is still to come.
        """
        self.in_use += 1
        is_over = False

        def release() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self.in_use -= 1
                self._wake()

        return release

    def on_success(self) -> None:
        """Grow by 1/limit: by one after a round of answers."""
        self._block_s = FIRST_BLOCK_S
        if self.clock() >= self._cooldown_until and self.limit < self.bound:
            self.limit = min(float(self.bound), self.limit + 1.0 / self.limit)
            self._wake()

    def on_overload(self, fault: WireFault) -> None:
        """Shrink: to the available instances where the account is full, else by a quarter."""
        now = self.clock()
        if fault.kind == INSTANCE_LIMIT:
            self.num_limits += 1
            self._shrink(max(1.0, float(self._available(fault))))
            self._cooldown_until = now + COOLDOWN_S
            if not self.num_owned and now >= self._blocked_until:
                # Other clients have all instances: retry after a pause. Else our own ones end.
                self._blocked_until = now + self._block_s * self.rng.uniform(0.5, 1.0)
                self._block_s = min(2.0 * self._block_s, LONGEST_BLOCK_S)
        elif now >= self._cooldown_until:
            self._shrink(max(1.0, DECREASE * self.limit))
            self._cooldown_until = now + COOLDOWN_S

    def hold(self, seconds: float) -> None:
        """Give out no slot for the time that the platform asked for, at most `LONGEST_HOLD_S`."""
        until = self.clock() + min(seconds, LONGEST_HOLD_S)
        self._blocked_until = max(self._blocked_until, until)

    def _available(self, fault: WireFault) -> int:
        """Return the instances that the account leaves us, from the platform's response."""
        running, limit = (fault.detail.get(k) for k in ("running_instances", "instance_limit"))
        if not isinstance(running, int) or not isinstance(limit, int):
            return self.num_owned
        # The refused creation has a slot until it releases it, hence one less.
        return min(limit - max(0, running - self.in_use), self.in_use - 1)

    def _shrink(self, limit: float) -> None:
        self.limit = min(self.limit, limit)

    async def _acquire(self) -> None:
        try:
            while True:
                hold = self._blocked_until - self.clock()
                if self.in_use >= int(self.limit):
                    await self._wait_for_slot()
                elif hold > 0.0:
                    await asyncio.sleep(hold)
                else:
                    self.in_use += 1
                    return
        except asyncio.CancelledError:
            # It may have been woken for a slot that it no longer takes: the next waiter gets it.
            self._wake()
            raise

    async def _wait_for_slot(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _wake(self) -> None:
        """Wake as many waiters as there are free slots."""
        free = int(self.limit) - self.in_use
        while free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1


@dataclass(frozen=True, slots=True)
class Share:
    """The limiters of an environment and of its account."""

    environment: Limiter
    account: Limiter

    @property
    def limit(self) -> int:
        """Current limit of the environment's instances."""
        return int(min(self.environment.limit, self.account.limit))

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot of both and hold it."""
        async with self.environment.slot(), self.account.slot():
            yield

    def on_success(self) -> None:
        """Let both limits grow."""
        self.environment.on_success()
        self.account.on_success()

    def hold(self, seconds: float) -> None:
        """Give out no slot of the environment for `seconds`."""
        self.environment.hold(seconds)

    def on_overload(self, fault: WireFault) -> None:
        """Shrink the limit that the fault refers to."""
        (self.account if fault.kind == INSTANCE_LIMIT else self.environment).on_overload(fault)
