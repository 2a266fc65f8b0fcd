"""Recovery: the checkpoint that an attempt resumes from, fetched, verified and qualified."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.protocol.events import CheckpointQualified, CheckpointRefused, RunWarning
from hillclimb.protocol.rundir import QUALIFIED, REFUSED, RESUME, run_key
from trainer.attempt.context import AttemptContext
from trainer.errors import CheckpointError
from trainer.jobs.train.checkpoints import Saved, fetch, stored_checkpoints
from trainer.jobs.train.qualification.process import TrialUndecided
from trainer.jobs.train.qualification.qualifier import Qualifier, TrialResult

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Finds the checkpoint that the attempt resumes from."""

    context: AttemptContext
    qualifier: Qualifier | None
    """None where checkpoints are not tried."""
    events: list[CheckpointQualified | CheckpointRefused | RunWarning] = field(default_factory=list)
    """Events of the search, to emit once the trainer has announced its start."""

    def fetch(self) -> Saved | None:
        """Fetch the checkpoint into the attempt's `resume/`; None for a fresh start.

        Where the one that the attempt was started with is damaged or refused and the run's own,
        the run's next older one takes its place.

        Raises:
            CheckpointError: none of them can be resumed from; the reason is that of the newest.
            StoreError: the store does not answer.
            StorageFull: no space.
        """
        named = self.context.resume_from
        if named is None:
            return None
        with self.context.startup.phase("checkpoint"):
            return self._fetch_newest(named)

    def _fetch_newest(self, named: str) -> Saved:
        refusals: list[CheckpointError] = []
        for key in (named, *self._older(named)):
            try:
                return self._fetch_qualified(key)
            except CheckpointError as error:
                refusals.append(error)
                self._report(key, str(error))
        raise refusals[0]

    def _older(self, named: str) -> Iterator[str]:
        """Yield the run's own checkpoints before `named`, newest first; none for another run's."""
        run_id = self.context.run_id
        if not named.startswith(f"{run_key(run_id)}/"):
            return
        keys = [each.key for each in stored_checkpoints(self.context.store, run_id)]
        before = keys[: keys.index(named)] if named in keys else keys
        yield from reversed(before)

    def _fetch_qualified(self, key: str) -> Saved:
        store, directory = self.context.store, self.context.dir.path / RESUME
        if store.exists(f"{key}/{REFUSED}"):
            raise CheckpointError(f"{key} failed its trial when it was saved")
        saved = fetch(store, key, directory, manifests=self.context.manifests)
        if self.qualifier is not None and not store.exists(f"{key}/{QUALIFIED}"):
            self._try(self.qualifier, saved, directory)
        return saved

    def _try(self, qualifier: Qualifier, saved: Saved, directory: Path) -> None:
        """Try a checkpoint whose attempt ended before its trial did.

        A failure is not recorded in the store: the cause may be this attempt's `model.source`.
        """
        started = time.perf_counter()
        try:
            reason = qualifier.try_fetched(saved, directory)
        except TrialUndecided as error:
            message = f"{saved.path} is resumed from without a trial: {error}"
            self._warn(saved.manifest.step, message)
            return
        if reason is not None:
            raise CheckpointError(f"{saved.key}: {reason}")
        result = TrialResult(reason=None, duration_s=time.perf_counter() - started)
        if saved.manifest.run_id == self.context.run_id:
            qualifier.record(saved, result)
            self.events.append(
                CheckpointQualified(
                    step=saved.manifest.step, path=saved.path, duration_s=result.duration_s
                )
            )

    def _report(self, key: str, reason: str) -> None:
        _log.warning("no recovery from %s: %s", key, reason)
        prefix = f"{run_key(self.context.run_id)}/"
        if key.startswith(prefix):
            path = key.removeprefix(prefix)
            step = int(path.split("global_step_")[1].split("/")[0])
            self.events.append(CheckpointRefused(step=step, path=path, reason=reason))

    def _warn(self, step: int, message: str) -> None:
        self.events.append(RunWarning(step=step, code="checkpoint_not_qualified", message=message))
