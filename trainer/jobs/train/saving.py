"""Saving in the loop: what a checkpoint holds is decided in `checkpoints.py`, when and how here.

The state is copied between two steps; files are written and stored while training goes on. One
save is under way at a time, and the last one is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from trainer.checkpoints import Checkpoints, Position, Saved
from trainer.contract.events import CheckpointDeleted, CheckpointSaved, PhaseStarted, RunWarning
from trainer.errors import StoreUnavailable
from trainer.learners.base import Learner
from trainer.sinks.journal import Journal
from trainer.stores.base import StoreError
from trainer.timing import Clock

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Saver:
    """Saves the learner's state, says so, and deletes old checkpoints."""

    checkpoints: Checkpoints
    learner: Learner
    journal: Journal
    clock: Clock
    keep_last: int
    keep_only: Callable[[Collection[str]], None]
    """As `Crew.keep_only`."""
    saved_step: int | None = None
    """Step of the last checkpoint that this attempt has completed."""
    _under_way: asyncio.Task[None] | None = None

    async def save(self, position: Position) -> None:
        """Copy the state and go on; the final checkpoint is complete on return.

        A store that fails is a warning until the end. What fails after the return is raised by
        the next call.

        Raises:
            StoreUnavailable: the final checkpoint could not be stored.
            StorageFull: no space.
            AttemptSuperseded: a newer attempt owns the run.
        """
        self.journal.emit(PhaseStarted, step=position.step, phase="checkpoint")
        with self.clock.phase("save_checkpoints"):
            await self.drain()
            try:
                finish = await asyncio.to_thread(
                    self.checkpoints.begin, position, self.learner.begin_save
                )
            except StoreError as error:
                self._could_not(position, error)
                return
            self._under_way = asyncio.create_task(self._finish(position, finish))
            if position.final:
                await self.drain()

    async def drain(self) -> None:
        """Wait for the save that is under way, if there is one; raises what `save` does."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            await under_way

    async def _finish(self, position: Position, finish: Callable[[], Saved]) -> None:
        step = position.step
        try:
            saved = await asyncio.to_thread(finish)
        except StoreError as error:
            self._could_not(position, error)
            return
        self.saved_step = step
        self.journal.emit(
            CheckpointSaved,
            step=step,
            path=saved.path,
            manifest_sha256=saved.manifest_sha256,
            size_bytes=saved.manifest.size_bytes,
            final=saved.manifest.final,
        )
        await self._prune(step)

    async def _prune(self, step: int) -> None:
        try:
            gone = self.checkpoints.prune(self.keep_last)
            while path := await asyncio.to_thread(next, gone, None):
                self.journal.emit(CheckpointDeleted, step=step, path=path)
            await asyncio.to_thread(lambda: self.keep_only(self.checkpoints.complete()))
        except StoreError as error:
            self._warn(step, "checkpoint_not_deleted", error)

    def _could_not(self, position: Position, error: StoreError) -> None:
        if position.final:
            raise StoreUnavailable(f"the last checkpoint is not stored: {error}") from error
        self._warn(position.step, "checkpoint_not_saved", error)

    def _warn(self, step: int, code: str, error: StoreError) -> None:
        _log.warning("%s: %s", code, error)
        self.journal.emit(RunWarning, step=step, code=code, message=str(error))
