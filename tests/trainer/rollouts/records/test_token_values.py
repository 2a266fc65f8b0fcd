"""The file of the learner's values of each token: which rollout has which, and its size."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.hillclimb.stats.trajectories.stored_tokens import (
    ENTROPIES,
    GAPS,
    learned,
    not_learned,
)
from tests.trainer.fixtures.tiny import task, trajectory
from trainer.algo.sequences import Batch, SequenceValues, TrainingSequence
from trainer.learners.update.token_values import packed
from trainer.rollouts.records.token_values import write_token_values
from trainer.rollouts.request import Rollout


def rollout(sample: int) -> Rollout:
    made = trajectory(1.0, of=task(), sample_index=sample)
    return Rollout(trajectory=made, num_turns=1, duration_s=1.0, infra_errors=())


def sequence(rollout_id: str, advantage: float = 0.5) -> TrainingSequence:
    return TrainingSequence(
        token_ids=(1, 2, 3),
        action_mask=(False, True, True),
        logprobs=(0.0, -1.0, -1.0),
        prompt_length=1,
        advantage=advantage,
        temperature=1.0,
        rollout_id=rollout_id,
    )


def values(rollout_id: str, gaps: tuple[float, ...] = GAPS, **changes: Any) -> SequenceValues:
    made = SequenceValues(
        rollout_id=rollout_id,
        length=8,
        gaps=packed(torch.tensor(gaps)),
        entropies=packed(torch.tensor(ENTROPIES)),
        num_updates=1,
    )
    return replace(made, **changes)


def write(path: Path, *all_values: SequenceValues, num: int = 2, **options: Any) -> list[str]:
    """The lines of the file of `num` rollouts."""
    batch = Batch(mini_batches=(tuple(sequence(f"booking-1-{i}") for i in range(num)),))
    rollouts = [rollout(i) for i in range(num)]
    write_token_values(path / "file", rollouts, batch, all_values, version=4, **options)
    return gzip.decompress((path / "file").read_bytes()).decode().splitlines()


def test_a_rollout_has_the_learners_values_or_none(tmp_path: Path) -> None:
    lines = write(tmp_path, values("booking-1-0"))
    assert lines == [learned("booking-1-0"), not_learned("booking-1-1")]


def test_a_server_that_computes_no_entropies_has_none(tmp_path: Path) -> None:
    (line, _) = write(tmp_path, values("booking-1-0", entropies=None))
    assert "entropies" not in json.loads(line)


def test_turns_that_are_sequences_of_their_own_are_put_in_order(tmp_path: Path) -> None:
    late = values("booking-1-0", gaps=(3.0,), length=9)
    early = values("booking-1-0", gaps=(1.0, 2.0), length=5)
    (line, _) = write(tmp_path, late, early)
    gaps = struct.unpack("<3e", base64.b64decode(json.loads(line)["gaps"]))
    assert gaps == (1.0, 2.0, 3.0)


def test_of_copies_the_one_that_fewest_updates_preceded_counts(tmp_path: Path) -> None:
    """Dynamic sampling may put a group into a batch several times."""
    copies = (
        values("booking-1-0", gaps=(2.0,) * 4, num_updates=2),
        values("booking-1-0", num_updates=1),
    )
    (line, _) = write(tmp_path, *copies)
    assert line == learned("booking-1-0")


@pytest.mark.parametrize(("max_bytes", "num_stored"), [(32, 2), (31, 1), (16, 1), (15, 0)])
def test_rollouts_are_stored_up_to_the_bound(
    tmp_path: Path, max_bytes: int, num_stored: int
) -> None:
    """Four tokens with log-prob and entropy are 16 bytes."""
    ids = [f"booking-1-{i}" for i in range(2)]
    lines = [json.loads(line) for line in write(tmp_path, *map(values, ids), max_bytes=max_bytes)]
    states = ["learned"] * num_stored + ["left_out"] * (2 - num_stored)
    assert [line["state"] for line in lines] == states
    assert ["gaps" in line for line in lines] == [state == "learned" for state in states]
    assert {line["advantage"] for line in lines} == {0.5}


def test_equal_values_make_equal_bytes(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        write(tmp_path / name, values("booking-1-0"))
        files.append((tmp_path / name / "file").read_bytes())
    assert files[0] == files[1]


def test_what_float16_cannot_hold_becomes_its_largest() -> None:
    assert packed(torch.tensor([1e9, -1e9])) == struct.pack("<2e", 65504.0, -65504.0)
