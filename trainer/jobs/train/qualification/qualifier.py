"""Qualifies a run's checkpoints: fetches what the store has, tries it, records the result there."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.rundir import MANIFEST, QUALIFIED, REFUSED
from hillclimb.spec.run import RunSpec
from trainer.errors import CheckpointError, StorageFull
from trainer.jobs.train.checkpoints import Saved, fetch
from trainer.jobs.train.qualification.process import TrialProcess, TrialUndecided
from trainer.jobs.train.qualification.trial import CHECKPOINT, RESULT, TRIAL, Trial

DEADLINE_S = 1200.0
"""Longest trial (seconds); a checkpoint of 100 GB loads in minutes."""
MEMORY_PER_BYTE = 3.0
"""Memory of a trial per byte of the checkpoint: the state, the gradient, and room to load it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Result of a trial."""

    reason: str | None
    """Reason for the refusal; None for a qualified checkpoint."""
    duration_s: float


@dataclass(slots=True, kw_only=True)
class Qualifier:
    """Tries one checkpoint at a time; its methods block."""

    store: BlobStore
    spec: RunSpec
    model_dir: Path
    folder: Path
    """Scratch directory, deleted after each trial."""
    process: TrialProcess = field(default_factory=TrialProcess)

    def qualify(self, saved: Saved) -> TrialResult:
        """Try the checkpoint as the store has it and put the result beside its manifest.

        Raises:
            TrialUndecided: there is no result.
            StoreError: the store does not answer.
        """
        started = time.perf_counter()
        try:
            reason = self._fetch_and_try(saved)
        except StorageFull as error:
            raise TrialUndecided(str(error)) from error
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        result = TrialResult(reason=reason, duration_s=time.perf_counter() - started)
        self.record(saved, result)
        return result

    def try_fetched(self, saved: Saved, directory: Path) -> str | None:
        """Try a checkpoint that was fetched into `directory`; return the reason for a refusal.

        Raises:
            TrialUndecided: there is no result.
        """
        _check_memory(saved)
        try:
            return self._run(saved, directory)
        except OSError as error:
            raise TrialUndecided(f"its trial could not be prepared: {error}") from error

    def record(self, saved: Saved, result: TrialResult) -> None:
        """Put the result beside the manifest, unless the checkpoint was deleted meanwhile.

        Raises:
            StoreError: the store does not answer.
        """
        if not self.store.exists(f"{saved.key}/{MANIFEST}"):
            return
        name = QUALIFIED if result.reason is None else REFUSED
        facts = {
            "manifest_sha256": saved.manifest_sha256,
            "reason": result.reason,
            "duration_s": round(result.duration_s, 3),
        }
        self.store.put_if_absent(f"{saved.key}/{name}", json.dumps(facts).encode())

    def _run(self, saved: Saved, directory: Path) -> str | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        checkpoint = self.folder / CHECKPOINT
        if checkpoint != directory:
            checkpoint.symlink_to(directory.resolve(), target_is_directory=True)
        trial = Trial(spec=self.spec, model_dir=self.model_dir.resolve(), manifest=saved.manifest)
        (self.folder / TRIAL).write_text(trial.model_dump_json())
        (self.folder / RESULT).unlink(missing_ok=True)
        try:
            self.process.run(self.folder, deadline_s=DEADLINE_S)
            reason: str | None = json.loads((self.folder / RESULT).read_text())["reason"]
        finally:
            if checkpoint.is_symlink():
                checkpoint.unlink()
        return reason

    def _fetch_and_try(self, saved: Saved) -> str | None:
        directory = self.folder / CHECKPOINT
        _check_disk(saved, self.folder)
        try:
            own = {saved.key: saved.manifest_sha256}
            fetched = fetch(self.store, saved.key, directory, manifests=own)
        except CheckpointError as error:
            if not self.store.exists(f"{saved.key}/{MANIFEST}"):
                raise TrialUndecided("it was deleted before its trial") from error
            return f"damaged: {error}"
        return self.try_fetched(fetched, directory)

    def close(self) -> None:
        """Kill the process for trials."""
        self.process.close()


def _check_memory(saved: Saved) -> None:
    """Begin no trial that could drive the machine out of memory, and the trainer with it."""
    needed = MEMORY_PER_BYTE * saved.manifest.size_bytes
    _check_room("memory", needed, psutil.virtual_memory().available)


def _check_disk(saved: Saved, folder: Path) -> None:
    """Begin no trial that could fill the disk on which the trainer writes."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _check_room("disk", saved.manifest.size_bytes, shutil.disk_usage(folder.parent).free)


def _check_room(of: str, needed: float, free: float) -> None:
    if needed > free / 2:
        raise TrialUndecided(
            f"its trial would take {needed / 2**30:.1f} GiB of the {free / 2**30:.1f} GiB of {of}"
            " that are free"
        )
