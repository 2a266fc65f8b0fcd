"""Three ranks and six, over which no tensor of the policy divides evenly, learn what one does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer.learners.model.sharded import learn, learn_together

SPENT = ("policy/tokens_per_second", "policy/peak_memory_gib", "policy/flops")
"""Figures of what a step cost: a prompt is computed once per rank that has rollouts of it."""


def distance(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """Norm of the difference of two sets of weights over the norm of the first."""
    total = sum(tensor.square().sum() for tensor in one.values())
    return float((sum((one[n] - other[n]).square().sum() for n in one) / total).sqrt())


@pytest.mark.invariant("shards of unequal size are trained and sent whole")
@pytest.mark.parametrize("size", [3, pytest.param(6, marks=pytest.mark.long)])
def test_ranks_with_shards_of_unequal_size_learn_and_send_what_one_does(
    tmp_path: Path, size: int
) -> None:
    learn(tmp_path, "of_1")
    learn_together(tmp_path, size)
    one, several = (load_file(tmp_path / f"of_{each}.safetensors") for each in (1, size))
    assert one.keys() == several.keys()
    assert distance(one, several) < 1e-5
    alone, together = (json.loads((tmp_path / f"of_{each}.json").read_text()) for each in (1, size))
    assert together["is_sent_whole"] is True
    for step, (expected, found) in enumerate(
        zip(alone["metrics"], together["metrics"], strict=True)
    ):
        for name in expected.keys() - set(SPENT):
            if not name.startswith("timing/"):
                assert found[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-5), (
                    step,
                    name,
                )
    shards = [
        json.loads((tmp_path / f"of_{size}-shards-{rank}.json").read_text()) for rank in range(size)
    ]
    uneven = [name for name in shards[0] if len({each[name] for each in shards}) > 1]
    assert len(uneven) == len(shards[0]), "a shard that is even would prove nothing"
