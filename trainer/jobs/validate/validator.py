"""A validation: every task checked, the rows kept as it goes on, one report at the end."""

from __future__ import annotations

import asyncio
import logging
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
from trainer.errors import AttemptSuperseded, TrainerError
from trainer.sinks.journal import Journal
from trainer.stopping import Stop, StopRequested
from trainer.storage import space_checked
from trainer.stores.base import BlobStore, StoreError
from trainer.timing import Clock
from trainer.types import Task
from trainer.validation.checks import Checker, not_reached
from trainer.validation.endpoint import Endpoint
from trainer.validation.rows import write_rows, write_use
from trainer.watchdog import Watchdog

SIGN_OF_LIFE_S = 30.0
"""Between two signs of life, and two writings of the rows (seconds)."""
_log = logging.getLogger(__name__)


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
            StopRequested, TrainerError: asked to stop, out of time, or the teacher refuses us; what
                was found by then is reported.
            AttemptSuperseded: a newer attempt owns the run; nothing is stored any more.
            StoreError: the rows cannot be stored.
        """
        began = time.perf_counter()
        self.watchdog.watch_run()
        early: StopRequested | TrainerError | None = None
        left = [task for task in self.tasks if task.key not in self.known]
        try:
            with self.clock.evaluation():
                await self._check_all(left)
        except AttemptSuperseded:
            raise
        except (StopRequested, TrainerError) as error:
            early = error
        try:
            rows = await self._store()
        except (StoreError, TrainerError) as error:
            if early is None:
                raise
            _log.warning("what was found is not reported: %s", error)
            raise early from None
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

    async def _check_all(self, tasks: Sequence[Task]) -> None:
        """Check tasks, so many at once; what is known when this is cancelled stays known."""
        waiting = iter(tasks)

        async def check_some() -> None:
            for task in waiting:
                self.known[task.key] = await self.checker.check(task)

        lanes = {asyncio.create_task(check_some()) for _ in tasks[: self.concurrency]}
        try:
            await self._watch(lanes, tasks)
        finally:
            for each in lanes:
                each.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    async def _watch(self, lanes: set[asyncio.Task[None]], tasks: Sequence[Task]) -> None:
        """Wait for the lanes; as long as something ends, give signs of life and store the rows.

        A step lasts until an episode has ended, so it is late only where none does.
        """
        while lanes:
            num_left = sum(task.key not in self.known for task in tasks)
            self.journal.emit(PhaseStarted, step=0, phase="validate", num_rollouts=num_left)
            async with self.watchdog.step(0):
                lanes = await self.stop.unless(self._some_time(lanes))
            if lanes:
                try:
                    await self._store()
                except StoreError as error:
                    _log.warning("the rows are not stored yet: %s", error)

    async def _some_time(self, lanes: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Return the lanes that go on after a while, at the earliest when something has ended."""
        ended = self._num_ended
        while True:
            done, lanes = await asyncio.wait(
                lanes, timeout=SIGN_OF_LIFE_S, return_when=asyncio.FIRST_EXCEPTION
            )
            for each in done:
                each.result()
            if not lanes or self._num_ended > ended:
                return lanes

    @property
    def _num_ended(self) -> int:
        return len(self.known) + self.checker.opener.num_ended

    async def _store(self) -> list[TaskValidation]:
        """Write a row for every task, in their order, and return them."""
        rows = [self.known.get(task.key) or not_reached(task) for task in self.tasks]
        with space_checked(self.attempt_dir.path):
            await asyncio.to_thread(write_rows, self.store, self.attempt_dir, rows)
            if self.endpoint is not None:
                use = self.endpoint.used
                await asyncio.to_thread(write_use, self.store, self.attempt_dir, use)
        return rows

    def _report(self, rows: Sequence[TaskValidation], *, duration_s: float, complete: bool) -> None:
        self._summary = summarise_tasks(rows)
        self.journal.emit(
            ValidationCompleted,
            step=0,
            complete=complete,
            rows=VALIDATION_ROWS,
            summary=self._summary,
            teacher=self.endpoint.used if self.endpoint else None,
            duration_s=duration_s,
        )
