"""A validation: every task checked, the rows kept as it goes on, one report at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer.contract.events import PhaseStarted, ValidationCompleted
from trainer.contract.rundir import AttemptDir
from trainer.contract.validation import (
    VALIDATION_ROWS,
    TaskValidation,
    ValidationSummary,
    summarise_tasks,
)
from trainer.envs.base import Closes, EnvProvider
from trainer.errors import RunTimeout, StepTimeout
from trainer.sinks.journal import Journal
from trainer.stopping import Stop, StopRequested
from trainer.storage import space_checked
from trainer.stores.base import BlobStore
from trainer.timing import Clock
from trainer.types import Task
from trainer.validation.checks import Checker, not_reached
from trainer.validation.endpoint import Endpoint
from trainer.validation.rows import write_rows
from trainer.watchdog import Watchdog

MIN_PORTION = 64
"""Tasks checked between two signs of life, and two writings of the rows, at the least."""


@dataclass(slots=True, kw_only=True)
class Validator:
    """Checks tasks and reports once; it is at step 0 from the beginning to the end."""

    tasks: Sequence[Task]
    checker: Checker
    provider: EnvProvider
    endpoint: Endpoint | None
    concurrency: int
    """Tasks at once."""
    store: BlobStore
    attempt_dir: AttemptDir
    journal: Journal
    stop: Stop
    clock: Clock
    watchdog: Watchdog
    known: dict[str, TaskValidation] = field(default_factory=dict)
    """What is known of tasks, by key: of earlier attempts at first."""
    step: int = 0
    _summary: ValidationSummary | None = None

    async def train(self) -> None:
        """Check every task that nothing is known of, and report.

        Raises:
            StopRequested, RunTimeout, StepTimeout: asked to stop or out of time; what was found by
                then is reported.
            TrainerError: the teacher refuses us, or the rows cannot be stored.
        """
        began = time.perf_counter()
        self.watchdog.watch_run()
        early: StopRequested | RunTimeout | StepTimeout | None = None
        left = [task for task in self.tasks if task.key not in self.known]
        size = max(MIN_PORTION, 2 * self.concurrency)
        try:
            for start in range(0, len(left), size):
                portion = left[start : start + size]
                self.journal.emit(
                    PhaseStarted, step=0, phase="validate", num_rollouts=len(left) - start
                )
                with self.clock.evaluation():
                    async with self.watchdog.step(0):
                        await self.stop.unless(self._check(portion))
                await self._store()
        except (StopRequested, RunTimeout, StepTimeout) as error:
            early = error
        rows = await self._store()
        self._report(rows, duration_s=time.perf_counter() - began, complete=early is None)
        if early is not None:
            raise early

    async def close(self) -> None:
        """Close the connections to the teacher and what the provider holds."""
        try:
            if isinstance(self.provider, Closes):
                await self.provider.close()
        finally:
            if self.endpoint is not None:
                await self.endpoint.close()

    def summary(self) -> str:
        """Say how many tasks came out how."""
        counts = self._summary.verdicts if self._summary else {}
        words = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
        return f"validated {len(self.tasks)} tasks: {words}"

    async def _check(self, portion: Sequence[Task]) -> None:
        """Check tasks at once; what is known when this is cancelled stays known."""
        free = asyncio.Semaphore(self.concurrency)

        async def check(task: Task) -> None:
            async with free:
                self.known[task.key] = await self.checker.check(task)

        running = [asyncio.create_task(check(task)) for task in portion]
        try:
            await asyncio.gather(*running)
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _store(self) -> list[TaskValidation]:
        """Write a row for every task, in their order, and return them."""
        rows = [self.known.get(task.key) or not_reached(task) for task in self.tasks]
        with space_checked(self.attempt_dir.path):
            await asyncio.to_thread(write_rows, self.store, self.attempt_dir, rows)
        return rows

    def _report(self, rows: Sequence[TaskValidation], *, duration_s: float, complete: bool) -> None:
        self._summary = summarise_tasks(rows)
        self.journal.emit(
            ValidationCompleted,
            step=0,
            complete=complete,
            rows=VALIDATION_ROWS,
            summary=self._summary,
            teacher=self.endpoint.use() if self.endpoint else None,
            duration_s=duration_s,
        )
