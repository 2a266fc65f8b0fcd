"""Deadlines of a step and of the run; a rollout's deadlines are in `rollouts/limits/budget.py`.

Work on the event loop is cancelled at its deadline. A hanging thread cannot be cancelled: it is
abandoned, and the process exits without it (`jobs/process.py`). If the event loop itself hangs, a
timer thread reports the timeout.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from trainer.attempt.context import AttemptContext
from trainer.errors import RunTimeout, StepTimeout, TrainerError

GRACE_S = 60.0
"""Time after a deadline in which the event loop may notice it (seconds)."""
REFRESH_S = 5.0
"""Time after a deadline in which engines may report their token counters (seconds)."""

PARTIAL_REPORT = "the results so far are reported"
"""`Watchdog.remainder` of a job that reports once, at its end."""
SAVED_STEP = "its last step is saved, and a resume goes on from there with as much time again"

HUNG = {
    "rollout": "the rollouts did not end",
    "eval": "the rollouts of an evaluation did not end, or after them no engine answered",
    "train": "the learner's step did not return",
    "sync": "the engine did not load the learner's weights, or did not answer the canary",
    "checkpoint": "a checkpoint was not stored",
    "validate": "the checks of some tasks did not end",
    "prompts": "the engines did not answer once the prompts were counted",
}


@dataclass(slots=True, kw_only=True)
class Watchdog:
    """Bounds steps by `schedule.step_timeout_s`, and the run by `schedule.run_timeout_s`."""

    context: AttemptContext
    num_sampled: Callable[[], int]
    """Tokens that the engines have sampled so far."""
    refresh: Callable[[], Awaitable[None]] | None = None
    """Updates the counter behind `num_sampled`."""
    remainder: str = SAVED_STEP
    """Result that remains of a run ended at its deadline, for the message."""
    ran_before_s: float = 0.0
    """Run time of earlier attempts (seconds)."""
    _began: float = field(default_factory=time.monotonic)
    _deadline: asyncio.Timeout | None = None

    @property
    def ran_s(self) -> float:
        """Run time over all attempts (seconds)."""
        return self.ran_before_s + time.monotonic() - self._began

    def watch_run(self) -> None:
        """Stop the run at its deadline: between two steps, or by cancelling rollouts in flight.

        `StopSignal` then raises RunTimeout.
        """
        limit_s = self.context.spec.schedule.run_timeout_s
        if limit_s is None:
            return
        message = (
            f"the run took longer than schedule.run_timeout_s ({limit_s:g} s); {self.remainder}"
        )
        asyncio.get_running_loop().call_later(
            max(0.0, limit_s - self.ran_s), self.context.stop.fail, RunTimeout(message)
        )

    @asynccontextmanager
    async def step(self, number: int, *, phase: str | None = None) -> AsyncIterator[None]:
        """Bound the block, part of step `number`, by the step's deadline.

        `phase` names the block's phase, by default the last one in the journal.

        Raises:
            StepTimeout: the block took longer; its work on the event loop is cancelled.
        """
        context, sampled_before = self.context, self.num_sampled()
        limit_s = context.spec.schedule.step_timeout_s

        def timeout() -> StepTimeout:
            name = phase or context.journal.phase or "sync"
            return self._timeout(number, name, sampled_before)

        timer = threading.Timer(limit_s + GRACE_S, lambda: context.on_blocked(timeout()))
        timer.daemon = True
        timer.start()
        try:
            async with asyncio.timeout(limit_s) as deadline:
                self._deadline = deadline
                if self.refresh is not None and phase != "checkpoint":
                    # A checkpoint is saved whether or not the engines still answer.
                    await self.refresh()
                    sampled_before = self.num_sampled()
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            with suppress(TimeoutError, TrainerError):
                await self._refresh_counters()
            raise timeout() from None
        finally:
            timer.cancel()

    async def _refresh_counters(self) -> None:
        if self.refresh is not None:
            async with asyncio.timeout(REFRESH_S):
                await self.refresh()

    def _timeout(self, number: int, phase: str, sampled_before: int) -> StepTimeout:
        reason = HUNG[phase]
        if phase in ("rollout", "eval"):
            sampled = self.num_sampled() - sampled_before
            reason += f"; the engine sampled {sampled or 'no'} token{'' if sampled == 1 else 's'}"
        limit_s = self.context.spec.schedule.step_timeout_s
        return StepTimeout(
            f"step {number} took longer than schedule.step_timeout_s ({limit_s:g} s), in phase"
            f" {phase}: {reason}",
            phase=phase,
        )
