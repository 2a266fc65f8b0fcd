"""A validation: checks every task, stores the rows as it goes, and reports once at the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hillclimb.blobs.base import StoreError
from hillclimb.environment.base import AsyncCloseable, EnvProvider
from hillclimb.environment.task import Task
from hillclimb.protocol.events import PhaseStarted, ValidationCompleted
from hillclimb.protocol.validation import (
    VALIDATION_ROWS,
    TaskValidation,
    ValidationSummary,
    summarise_tasks,
)
from trainer.attempt.context import AttemptContext
from trainer.attempt.stop_signal import StopRequested
from trainer.attempt.storage import raise_storage_full
from trainer.attempt.watchdog import Watchdog
from trainer.errors import AttemptSuperseded, TrainerError
from trainer.jobs.validate.checks import Checker, not_reached
from trainer.jobs.validate.endpoint import Endpoint
from trainer.jobs.validate.rows import write_rows, write_use

PROGRESS_S = 30.0
"""Interval of progress events and of storing the rows (seconds)."""
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Validator:
    """Checks tasks and reports once; its step is always 0."""

    context: AttemptContext
    tasks: Sequence[Task]
    checker: Checker
    provider: EnvProvider
    endpoint: Endpoint | None
    watchdog: Watchdog
    known: dict[str, TaskValidation] = field(default_factory=dict)
    """Rows of checked tasks, by key; at first those of earlier attempts."""
    step: int = 0
    _summary: ValidationSummary | None = None

    async def train(self) -> None:
        """Check every task that has no row yet, and report.

        Raises:
            StopRequested, TrainerError: stopped on request, out of time, or refused by the teacher;
                the rows so far are reported.
            AttemptSuperseded: a newer attempt owns the run; nothing more is stored.
            StoreError: the rows cannot be stored.
        """
        began = time.perf_counter()
        self.watchdog.watch_run()
        early: StopRequested | TrainerError | None = None
        unchecked = [task for task in self.tasks if task.key not in self.known]
        try:
            with self.context.clock.evaluation():
                await self._check_all(unchecked)
        except AttemptSuperseded:
            raise
        except (StopRequested, TrainerError) as error:
            early = error
        try:
            rows = await self._store()
        except (StoreError, TrainerError) as error:
            if early is None:
                raise
            _log.warning("the results are not reported: %s", error)
            raise early from None
        self._report(rows, duration_s=time.perf_counter() - began, complete=early is None)
        if early is not None:
            raise early

    async def close(self) -> None:
        """Close the provider and the connections to the teacher."""
        try:
            if isinstance(self.provider, AsyncCloseable):
                await self.provider.close()
        finally:
            if self.endpoint is not None:
                await self.endpoint.close()

    def summary(self) -> str:
        """Return the number of tasks by verdict."""
        counts = self._summary.verdicts if self._summary else {}
        words = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
        return f"validated {len(self.tasks)} tasks: {words}"

    async def _check_all(self, tasks: Sequence[Task]) -> None:
        """Check tasks concurrently; rows so far are kept if this is cancelled."""
        waiting = iter(tasks)

        async def check_some() -> None:
            for task in waiting:
                self.known[task.key] = await self.checker.check(task)

        limit = self.context.spec.environment.max_concurrent_rollouts
        workers = {asyncio.create_task(check_some()) for _ in tasks[:limit]}
        try:
            await self._watch(workers, tasks)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _watch(self, workers: set[asyncio.Task[None]], tasks: Sequence[Task]) -> None:
        """Wait for the workers; emit progress and store the rows as long as episodes end.

        A step lasts until an episode has ended, so it times out only if none does.
        """
        while workers:
            num_left = sum(task.key not in self.known for task in tasks)
            self.context.journal.emit(PhaseStarted(step=0, phase="validate", num_rollouts=num_left))
            async with self.watchdog.step(0):
                workers = await self.context.stop.race(self._wait(workers))
            if workers:
                try:
                    await self._store()
                except StoreError as error:
                    _log.warning("the rows are not stored yet: %s", error)

    async def _wait(self, workers: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Return the workers still running once an episode has ended and `PROGRESS_S` is over."""
        ended = self._num_ended
        while True:
            done, workers = await asyncio.wait(
                workers, timeout=PROGRESS_S, return_when=asyncio.FIRST_EXCEPTION
            )
            for worker in done:
                worker.result()
            if not workers or self._num_ended > ended:
                return workers

    @property
    def _num_ended(self) -> int:
        return len(self.known) + self.checker.episodes.num_ended

    async def _store(self) -> list[TaskValidation]:
        """Store one row per task, in task order, and return the rows."""
        rows = [self.known.get(task.key) or not_reached(task) for task in self.tasks]
        with raise_storage_full(self.context.dir.path):
            await asyncio.to_thread(write_rows, self.context.store, self.context.dir, rows)
            if self.endpoint is not None:
                use = self.endpoint.used
                await asyncio.to_thread(write_use, self.context.store, self.context.dir, use)
        return rows

    def _report(self, rows: Sequence[TaskValidation], *, duration_s: float, complete: bool) -> None:
        self._summary = summarise_tasks(rows)
        self.context.journal.emit(
            ValidationCompleted(
                step=0,
                complete=complete,
                rows=VALIDATION_ROWS,
                summary=self._summary,
                teacher=self.endpoint.used if self.endpoint else None,
                duration_s=duration_s,
            )
        )
