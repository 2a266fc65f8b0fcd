"""The second bound of dual clip, by hand."""

from __future__ import annotations

import math

import pytest

from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.algo.loss.micro import gradient_of, micro_batch
from trainer.algo.loss.loss import policy_loss

DUAL = AlgorithmSpec(policy_loss_type="dual_clip", clip_ratio_c=2.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "has_gradient"),
    [
        (1.9, -1.0, 1.9, True),
        (2.1, -1.0, 2.0, False),
        (2.1, -0.5, 1.0, False),
        (0.7, -1.0, 0.8, False),
        (2.1, 1.0, -1.28, False),
        (0.5, 1.0, -0.5, True),
    ],
)
def test_the_loss_of_a_bad_token_is_bounded_by_c(
    ratio: float, advantage: float, loss: float, has_gradient: bool
) -> None:
    logprobs, actions = micro_batch([[math.log(ratio) - 1.0]], [[-1.0]], advantages=[advantage])
    found, stats = policy_loss(logprobs, actions, DUAL)
    assert found.item() == pytest.approx(loss)
    assert (gradient_of(logprobs, found) != [0.0]) is has_gradient
    assert stats.num_dual_clipped == float(ratio > 2.0 and advantage < 0.0)


def test_without_it_the_same_token_has_no_bound() -> None:
    logprobs, actions = micro_batch([[math.log(50.0) - 1.0]], [[-1.0]], advantages=[-1.0])
    assert policy_loss(logprobs, actions, AlgorithmSpec())[0].item() == pytest.approx(50.0)


def test_each_clip_is_counted_on_its_side() -> None:
    ratios = [0.5, 0.5, 1.0, 2.0, 2.0]
    logprobs, actions = micro_batch(
        [[math.log(ratio)] for ratio in ratios],
        [[0.0]] * 5,
        advantages=[1.0, -1.0, 1.0, 1.0, -1.0],
    )
    stats = policy_loss(logprobs, actions, AlgorithmSpec())[1]
    assert (stats.num_clipped_low, stats.num_clipped_high) == (1.0, 1.0)
    assert stats.clip_ratio == pytest.approx(0.4)
