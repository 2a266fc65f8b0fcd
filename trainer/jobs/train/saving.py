"""Asynchronous saving of checkpoints; their contents are defined in `checkpoints.py`.

The state is copied between two steps; files are written and uploaded while training continues. One
save is in progress at a time, and the last one is awaited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hillclimb.blobs.base import StoreError
from hillclimb.protocol.events import CheckpointDeleted, CheckpointSaved, PhaseStarted, RunWarning
from trainer.attempt.context import AttemptContext
from trainer.errors import StoreUnavailable
from trainer.jobs.train.checkpoints import Checkpoints, Position, Saved
from trainer.learners.base import Learner

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Saver:
    """Saves the learner's state, emits the events, and deletes old checkpoints."""

    context: AttemptContext
    checkpoints: Checkpoints
    learner: Learner
    keep_only: Callable[[Collection[str]], None]
    """As `WorkerGroup.keep_only`."""
    saved_step: int | None = None
    """Step of the last checkpoint that this attempt has completed."""
    _pending: asyncio.Task[None] | None = None

    async def save(self, position: Position) -> None:
        """Copy the state and return; the final checkpoint is complete on return.

        A store error is only a warning unless the checkpoint is final. An error after the return is
        raised by the next call.

        Raises:
            StoreUnavailable: the final checkpoint could not be stored.
            StorageFull: no space.
            AttemptSuperseded: a newer attempt owns the run.
        """
        self.context.journal.emit(PhaseStarted(step=position.step, phase="checkpoint"))
        with self.context.clock.phase("save_checkpoints"):
            await self.drain()
            try:
                finish = await asyncio.to_thread(
                    self.checkpoints.begin, position, self.learner.begin_save
                )
            except StoreError as error:
                self._report_failure(position, error)
                return
            self._pending = asyncio.create_task(self._finish(position, finish))
            if position.final:
                await self.drain()

    async def drain(self) -> None:
        """Wait for the pending save, if there is one; raises as `save`."""
        pending, self._pending = self._pending, None
        if pending is not None:
            await pending

    async def _finish(self, position: Position, finish: Callable[[], Saved]) -> None:
        step = position.step
        try:
            saved = await asyncio.to_thread(finish)
        except StoreError as error:
            self._report_failure(position, error)
            return
        self.saved_step = step
        self.context.journal.emit(
            CheckpointSaved(
                step=step,
                path=saved.path,
                manifest_sha256=saved.manifest_sha256,
                size_bytes=saved.manifest.size_bytes,
                final=saved.manifest.final,
            )
        )
        await self._prune(step)

    async def _prune(self, step: int) -> None:
        try:
            deleted = self.checkpoints.prune(self.context.spec.checkpoints.keep_last)
            while path := await asyncio.to_thread(next, deleted, None):
                self.context.journal.emit(CheckpointDeleted(step=step, path=path))
            await asyncio.to_thread(lambda: self.keep_only(self.checkpoints.complete()))
        except StoreError as error:
            self._warn(step, "checkpoint_not_deleted", error)

    def _report_failure(self, position: Position, error: StoreError) -> None:
        if position.final:
            raise StoreUnavailable(f"the last checkpoint is not stored: {error}") from error
        self._warn(position.step, "checkpoint_not_saved", error)

    def _warn(self, step: int, code: str, error: StoreError) -> None:
        _log.warning("%s: %s", code, error)
        self.context.journal.emit(RunWarning(step=step, code=code, message=str(error)))
