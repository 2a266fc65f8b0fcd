"""Deadlines of a step and of the whole run; those of a rollout are in `rollouts/budget.py`.

Work on the event loop is cancelled at its deadline. A thread that hangs cannot be: it is left
behind, and the process ends without it (`process.py`). Where the event loop itself hangs, a timer
in a thread of its own has the last word.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from trainer.contract.sections import ScheduleSpec
from trainer.errors import RunTimeout, StepTimeout, TrainerError
from trainer.sinks.journal import Journal
from trainer.stopping import Stop

GRACE_S = 60.0
"""How long after a deadline the event loop may take to notice it."""
ASK_S = 5.0
"""How long engines may take to say, after a deadline, what they have drawn."""

HUNG = {
    "rollout": "the rollouts did not end",
    "eval": "the rollouts of an evaluation did not end, or after them no engine answered",
    "train": "the learner's step did not return",
    "sync": "the engine did not take the learner's weights, or did not answer the canary",
    "checkpoint": "a checkpoint was not stored",
    "validate": "the checks of some tasks did not end",
    "prompts": "the engines did not answer once the prompts were counted",
}


@dataclass(slots=True, kw_only=True)
class Watchdog:
    """Bounds steps by `schedule.step_timeout_s`, and the run by `schedule.run_timeout_s`."""

    schedule: ScheduleSpec
    journal: Journal
    stop: Stop
    num_drawn: Callable[[], int]
    """Tokens that the engine has drawn so far."""
    refresh: Callable[[], Awaitable[None]] | None = None
    """Brings `num_drawn` up to date."""
    keeps: str = "its last step is saved, and a resume goes on from there with as much time again"
    """What is left of a run that was ended at its deadline, in words."""
    ran_before_s: float = 0.0
    """Seconds that earlier attempts of the run have worked."""
    on_blocked: Callable[[StepTimeout], None] = lambda _: None
    """Called from another thread when even the event loop hangs."""
    _began: float = field(default_factory=time.monotonic)
    _deadline: asyncio.Timeout | None = None

    @property
    def ran_s(self) -> float:
        """Seconds that the run has worked, over its attempts."""
        return self.ran_before_s + time.monotonic() - self._began

    def watch_run(self) -> None:
        """Ask to stop at the run's deadline: between two steps, or by ending rollouts in flight.

        `Stop` then raises RunTimeout.
        """
        limit_s = self.schedule.run_timeout_s
        if limit_s is None:
            return
        message = f"the run took longer than schedule.run_timeout_s ({limit_s:g} s); {self.keeps}"
        asyncio.get_running_loop().call_later(
            max(0.0, limit_s - self.ran_s), self.stop.end, RunTimeout(message)
        )

    @asynccontextmanager
    async def step(self, number: int, *, phase: str | None = None) -> AsyncIterator[None]:
        """Bound the block, part of step `number`, by the step's deadline.

        `phase` is what it does, where that is not the phase that the journal entered last.

        Raises:
            StepTimeout: it took longer; what it did on the event loop is cancelled.
        """
        limit_s, drawn_before = self.schedule.step_timeout_s, self.num_drawn()

        def late() -> StepTimeout:
            return self._late(number, phase or self.journal.phase or "sync", drawn_before)

        timer = threading.Timer(limit_s + GRACE_S, lambda: self.on_blocked(late()))
        timer.daemon = True
        timer.start()
        try:
            async with asyncio.timeout(limit_s) as deadline:
                self._deadline = deadline
                if self.refresh is not None and phase != "checkpoint":
                    # A checkpoint is saved whether or not the engines still answer.
                    await self.refresh()
                    drawn_before = self.num_drawn()
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            with suppress(TimeoutError, TrainerError):
                await self._ask_again()
            raise late() from None
        finally:
            timer.cancel()

    async def _ask_again(self) -> None:
        if self.refresh is not None:
            async with asyncio.timeout(ASK_S):
                await self.refresh()

    def _late(self, number: int, phase: str, drawn_before: int) -> StepTimeout:
        what = HUNG[phase]
        if phase in ("rollout", "eval"):
            drawn = self.num_drawn() - drawn_before
            what += f"; the engine drew {drawn} tokens" if drawn else "; the engine drew no token"
        return StepTimeout(
            f"step {number} took longer than schedule.step_timeout_s"
            f" ({self.schedule.step_timeout_s:g} s), in phase {phase}: {what}",
            phase=phase,
        )
