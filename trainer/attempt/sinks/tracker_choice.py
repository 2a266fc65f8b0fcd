"""Chooses the trackers of an attempt, as its spec names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hillclimb.blobs.base import BlobStore
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.trackers.files import StoredFiles
from trainer.attempt.sinks.trackers.mlflow import open_mlflow
from trainer.attempt.sinks.trackers.old_names import WithOldNames, main_decoding
from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.attempt.sinks.trackers.tensorboard import TensorBoardFile
from trainer.attempt.sinks.tracking import Tracker, Tracking
from trainer.attempt.sinks.wandb_run import open_wandb, require_key


def add_trackers(
    journal: EventJournal, plan: TrackingPlan, store: BlobStore, environ: Mapping[str, str]
) -> None:
    """Add a sink for each tracker of the spec: each fails alone.

    Raises:
        SpecError: W&B is to be online, and the environment has no key.
    """
    tracking = plan.spec.tracking
    chosen: list[Callable[[], Tracker]] = []
    if tracking.wandb.mode != "disabled":
        require_key(plan, environ)
        decoding = main_decoding(plan.spec.eval)
        chosen.append(lambda: WithOldNames(open_wandb(plan), decoding=decoding))
    if tracking.tensorboard:
        chosen.append(lambda: TensorBoardFile(plan))
    if tracking.mlflow is not None:
        mlflow = tracking.mlflow
        chosen.append(lambda: open_mlflow(plan, mlflow, environ))
    for open_tracker in chosen:
        files = StoredFiles(store, plan.attempt_dir)
        events = plan.attempt_dir.events
        journal.add(Tracking(events, open_tracker, announce=journal.announce, files=files))
