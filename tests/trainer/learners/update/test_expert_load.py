"""Load of experts by hand."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.inputs.model.families.experts import ExpertLayout
from trainer.learners.model.experts import ExpertLoads
from trainer.learners.model.sharding import RankGroup, Ranks
from trainer.learners.update.expert_load import expert_metrics

LAYOUT = ExpertLayout(num=4, per_token=2, width=8, normalises=True, layers=(0, 2))
RANKS = Ranks(RankGroup())


def loads(*rows: list[int], strange: tuple[int, ...] = (0, 0, 0)) -> ExpertLoads:
    return ExpertLoads(torch.tensor(rows), torch.tensor(strange))


def test_a_layer_is_as_uneven_as_its_busiest_expert_and_all_as_the_worst_layer() -> None:
    given = loads([10, 10, 10, 10], [0, 0, 0, 0], [30, 10, 0, 0], strange=(2, 0, 6))
    metrics = expert_metrics(given, LAYOUT, RANKS, replays=True)
    uneven = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(4)
    assert metrics == pytest.approx(
        {
            "policy/experts/layer_0/max_load": 1.0,
            "policy/experts/layer_0/load_entropy": 1.0,
            "policy/experts/layer_0/num_idle": 0.0,
            "policy/experts/layer_2/max_load": 3.0,
            "policy/experts/layer_2/load_entropy": uneven,
            "policy/experts/layer_2/num_idle": 2.0,
            "policy/experts/max_load": 3.0,
            "policy/experts/load_entropy": uneven,
            "policy/experts/num_idle": 2.0,
            "policy/experts/replayed_otherwise": 8 / 80,
        }
    )


def test_a_step_in_which_nothing_was_computed_has_no_load() -> None:
    assert expert_metrics(loads(*[[0] * 4] * 3), LAYOUT, RANKS, replays=False) == {}
