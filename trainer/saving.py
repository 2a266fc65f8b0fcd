"""Saving in the loop: what a checkpoint holds is decided in `checkpoints.py`, when and how here."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from trainer.checkpoints import Checkpoints, Position
from trainer.contract.events import CheckpointDeleted, CheckpointSaved, PhaseStarted, RunWarning
from trainer.errors import TrainerError
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

    async def save(self, position: Position) -> bool:
        """Save and return whether it worked; a store that fails is a warning until the end.

        Raises:
            TrainerError: the final checkpoint could not be stored.
            StorageFull: no space.
            AttemptSuperseded: a newer attempt owns the run.
        """
        step = position.step
        self.journal.emit(PhaseStarted, step=step, phase="checkpoint")
        with self.clock.phase("save_checkpoints"):
            try:
                saved = await asyncio.to_thread(self.checkpoints.save, position, self.learner.save)
            except StoreError as error:
                if position.final:
                    raise TrainerError(f"the last checkpoint is not stored: {error}") from error
                self._warn(step, "checkpoint_not_saved", error)
                return False
        self.journal.emit(
            CheckpointSaved,
            step=step,
            path=saved.path,
            manifest_sha256=saved.manifest_sha256,
            size_bytes=saved.manifest.size_bytes,
            final=saved.manifest.final,
        )
        await self._prune(step)
        return True

    async def _prune(self, step: int) -> None:
        try:
            gone = await asyncio.to_thread(self.checkpoints.prune, self.keep_last)
        except StoreError as error:
            self._warn(step, "checkpoint_not_deleted", error)
            return
        for path in gone:
            self.journal.emit(CheckpointDeleted, step=step, path=path)

    def _warn(self, step: int, code: str, error: StoreError) -> None:
        _log.warning("%s: %s", code, error)
        self.journal.emit(RunWarning, step=step, code=code, message=str(error))
