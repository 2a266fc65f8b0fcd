"""Threads and allocator of a rank: many beside a GPU, one on shared cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.trainer.fixtures.short_run import short_spec
from trainer.workers.factory import WorkerFactory
from trainer.workers.ray.learner_actor import (
    ALLOCATOR,
    LearnerActor,
    allocator_settings,
    rank_threads,
)


@pytest.mark.parametrize(
    ("num_ranks", "has_gpu", "num_cores", "threads"),
    [(6, True, 208, 16), (8, True, 64, 8), (4, True, 2, 1), (6, False, 208, 1)],
)
def test_ranks_share_the_cores_of_a_machine_with_gpus(
    num_ranks: int, num_cores: int, threads: int, *, has_gpu: bool
) -> None:
    assert rank_threads(num_ranks, has_gpu=has_gpu, num_cores=num_cores) == threads


@pytest.mark.parametrize("transport", ["auto", "shm", "disk", "lora", "nccl"])
def test_segments_of_a_rank_can_grow(transport: str) -> None:
    assert allocator_settings(transport) == {ALLOCATOR: "expandable_segments:True"}


def test_memory_lent_to_an_engine_is_in_plain_segments() -> None:
    assert allocator_settings("ipc") == {}


def test_a_rank_beside_a_gpu_has_both_before_it_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.delenv(ALLOCATOR, raising=False)
    factory = WorkerFactory(
        spec=short_spec(tmp_path), model_dir=tmp_path, vocab_size=1, attempt_dir=tmp_path, attempt=1
    )
    before = torch.get_num_threads()
    try:
        LearnerActor(factory, 0, 2)
        assert torch.get_num_threads() == 3
        assert os.environ[ALLOCATOR] == "expandable_segments:True"
    finally:
        torch.set_num_threads(before)
        os.environ.pop(ALLOCATOR, None)
