"""Files of earlier attempts and runs that unpack to far more than they are end with a sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import run_key
from trainer.errors import DataError
from trainer.jobs.sft.rollouts import read_rollouts
from trainer.jobs.validate.rows import read_rows

BOMB = gzip.compress(bytes(16 << 20)) * 64
"""A megabyte that unpacks to a gigabyte of one line."""


def test_rollouts_to_imitate_beyond_the_limit_are_named(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    key = run_key("run_1", "attempt-1/trajectories/step-000001-train-0.jsonl.gz")
    store.put(key, BOMB)
    with pytest.raises(DataError, match=f"{key} has a line of more than 64 MiB"):
        list(read_rollouts(store, "run_1", min_score=0.5, vocab_size=100))


def test_rows_of_a_validation_beyond_the_limit_are_no_rows() -> None:
    with pytest.raises(ValueError, match="has a line of more than 64 MiB"):
        read_rows(BOMB)
