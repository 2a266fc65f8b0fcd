"""Graded rollouts of an earlier run as sequences to imitate, by the tokens that were sampled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hillclimb.blobs.archive.gzip_file import TRAJECTORIES_LIMIT, GzipUnreadable, stored_lines
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.rundir import run_key
from trainer.algo.sequences import TrainingSequence
from trainer.errors import DataError
from trainer.jobs.sft.encoding import imitated

_TRAINING = re.compile(r".*/attempt-\d+/trajectories/step-\d+-train-[^/]*\.jsonl\.gz")
"""Files of training rollouts; those of evaluations are never trained on."""


def read_rollouts(
    store: BlobStore, run_id: str, *, min_score: float, vocab_size: int
) -> Iterator[TrainingSequence]:
    """Yield the training rollouts of a run whose score is at least `min_score`, each once.

    Raises:
        DataError: a file is damaged or too large, or its tokens are those of another vocabulary.
        StoreError: the store does not answer.
    """
    seen: set[tuple[int, ...]] = set()
    for key in sorted(filter(_TRAINING.fullmatch, store.list(run_key(run_id)))):
        for record in _records(store, key):
            score = record["outcome"]["score"]
            mask = [bool(each) for each in record["action_mask"]]
            if score is None or score < min_score or not any(mask):
                continue
            sequence = imitated(record["token_ids"], mask, record["prompt_length"])
            if max(sequence.token_ids) >= vocab_size:
                raise DataError(
                    f"the rollouts of {run_id} have tokens that this model does not have: start"
                    " from the model that sampled them"
                )
            if sequence.token_ids not in seen:
                seen.add(sequence.token_ids)
                yield sequence


def _records(store: BlobStore, key: str) -> Iterator[dict[str, Any]]:
    try:
        for line in stored_lines(store, key, TRAJECTORIES_LIMIT):
            yield json.loads(line)
    except GzipUnreadable as fault:
        raise DataError(f"{key} {fault}") from fault
    except ValueError as fault:
        raise DataError(f"{key} cannot be read: {fault}") from fault
