"""Asynchronous saving and qualification of checkpoints; `checkpoints.py` defines their contents.

The state is copied between two steps; files are written and uploaded while training continues. One
save is in progress at a time, and the last one is awaited. One trial is under way at a time, beside
training; of the checkpoints saved meanwhile, the newest is tried next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from hillclimb.blobs.base import StoreError
from hillclimb.protocol.events import (
    CheckpointDeleted,
    CheckpointQualified,
    CheckpointRefused,
    CheckpointSaved,
    PhaseStarted,
    RunWarning,
)
from trainer.attempt.context import AttemptContext
from trainer.attempt.daemon_thread import start_in_daemon_thread
from trainer.attempt.stop_signal import StopRequested
from trainer.errors import StoreUnavailable
from trainer.jobs.train.checkpoints import Checkpoints, Position, Saved
from trainer.jobs.train.qualification.process import TrialUndecided
from trainer.jobs.train.qualification.qualifier import Qualifier
from trainer.learners.base import Learner

FINAL_TRIAL_S = 600.0
"""A run's end waits so long for the trial of its last checkpoint (seconds)."""
CLOSE_S = 5.0
"""The trial under way has so long to end when the run does (seconds)."""
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
    qualifier: Qualifier | None = None
    """None where checkpoints are not tried."""
    _pending: asyncio.Task[None] | None = None
    _trials: asyncio.Task[None] | None = None
    _untried: Saved | None = None
    _pruning: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_closing: bool = False

    async def save(self, position: Position) -> None:
        """Copy the state and return; the final checkpoint is complete, and tried, on return.

        A store error is only a warning unless the checkpoint is final. An error after the return is
        raised by the next call.

        Raises:
            StoreUnavailable: the final checkpoint could not be stored.
            StorageFull: no space.
            AttemptSuperseded: a newer attempt owns the run.
        """
        if self.qualifier is not None:
            # It imports its libraries while the files are written.
            self.qualifier.process.start()
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
                await self._last_trial(position.step)

    async def drain(self) -> None:
        """Wait for the pending save, if there is one; raises as `save`."""
        pending, self._pending = self._pending, None
        if pending is not None:
            await pending

    async def close(self) -> None:
        """End the trial under way without a result."""
        self._is_closing, self._untried = True, None
        if self.qualifier is not None:
            self.qualifier.close()
        if self._trials is not None:
            await asyncio.wait((self._trials,), timeout=CLOSE_S)

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
        self._try_next(saved)
        await self._prune(step)

    def _try_next(self, saved: Saved) -> None:
        if self.qualifier is None or self._is_closing:
            return
        self._untried = saved
        if self._trials is None or self._trials.done():
            self._trials = asyncio.create_task(self._try_all(self.qualifier))

    async def _try_all(self, qualifier: Qualifier) -> None:
        while (saved := self._untried) is not None:
            self._untried = None
            await self._try(qualifier, saved)

    async def _try(self, qualifier: Qualifier, saved: Saved) -> None:
        step = saved.manifest.step
        try:
            result = await asyncio.wrap_future(
                start_in_daemon_thread(lambda: qualifier.qualify(saved), name="trial")
            )
        except (TrialUndecided, StoreError) as error:
            if not self._is_closing:
                self._warn(step, "checkpoint_not_qualified", error)
            return
        if result.reason is not None:
            _log.error("%s is refused: %s", saved.path, result.reason)
            self.context.journal.emit(
                CheckpointRefused(step=step, path=saved.path, reason=result.reason)
            )
            return
        self.context.journal.emit(
            CheckpointQualified(step=step, path=saved.path, duration_s=result.duration_s)
        )
        await self._prune(step)

    async def _last_trial(self, step: int) -> None:
        """Wait for the trial of the final checkpoint; raises AttemptSuperseded as its `_prune`.

        A stop does not wait for it: the run is complete, and another attempt would only repeat it.
        """
        if self._trials is None:
            return
        done: set[asyncio.Task[None]] = set()
        why = f"its trial did not end within {FINAL_TRIAL_S:.0f} s"
        try:
            done, _ = await self.context.stop.race(
                asyncio.wait((self._trials,), timeout=FINAL_TRIAL_S)
            )
        except StopRequested:
            why = "the trainer was asked to stop before its trial had ended"
        if not done:
            self._warn(step, "checkpoint_not_qualified", TrialUndecided(why))
        for trials in done:
            await trials

    async def _prune(self, step: int) -> None:
        async with self._pruning:
            await self._delete_older(step)

    async def _delete_older(self, step: int) -> None:
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

    def _warn(self, step: int, code: str, error: StoreError | TrialUndecided) -> None:
        _log.warning("%s: %s", code, error)
        self.context.journal.emit(RunWarning(step=step, code=code, message=str(error)))
