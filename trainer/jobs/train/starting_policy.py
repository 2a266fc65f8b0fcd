"""Fetches the policy that a run starts from: a model, or the policy of another run's checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hillclimb.protocol.rundir import MODEL, POLICY, checkpoint_name, run_key
from hillclimb.spec.hosts import S3
from hillclimb.spec.training.model import checkpoint_source
from trainer.attempt.context import AttemptContext
from trainer.errors import SpecError
from trainer.inputs.model.sources import MODEL_FILES, resolve_source
from trainer.inputs.own_files import refuse_others_files
from trainer.jobs.train.checkpoints import fetch

FETCHED = ("builtin:", "hf:", S3)
"""Beginnings of a `model.source` that is no path of this machine."""


def fetch_model(context: AttemptContext, *, patterns: Sequence[str] = MODEL_FILES) -> Path:
    """Return the directory of the policy that the run starts from, fetched where needed.

    Raises:
        ModelUnavailable, StoreUnavailable, StorageFull: as `resolve_source`.
        SpecError: `model.source` is a path into the files of other runs.
        CheckpointError: `model.source` names a checkpoint that is missing, torn or replaced.
    """
    source, downloads = context.spec.model.source, context.dir.path / MODEL
    named = checkpoint_source(source)
    if named is None:
        if not source.startswith(FETCHED):
            refuse_others_files("model.source", Path(source), context.dir)
        return resolve_source(source, downloads, patterns=patterns)
    if named.step is None or named.attempt is None:
        raise SpecError(f"model.source {source} names no step: the service fills it in")
    key = run_key(named.run_id, checkpoint_name(named.step, named.attempt))
    fetch(context.store, key, downloads, only=f"{POLICY}/", manifests=context.manifests)
    return downloads / POLICY
