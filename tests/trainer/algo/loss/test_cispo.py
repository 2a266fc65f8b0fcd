"""Bounded weights, by hand: no token loses its gradient."""

from __future__ import annotations

import math

import pytest

from hillclimb.spec.training.algorithm import AlgorithmSpec, CispoSpec
from tests.trainer.algo.loss.micro import gradient_of, micro_batch
from trainer.algo.loss.loss import policy_loss

CISPO = AlgorithmSpec(
    policy_loss_type="cispo", cispo=CispoSpec(cispo_eps_clip_low=0.5, cispo_eps_clip_high=1.0)
)


@pytest.mark.parametrize(("ratio", "weight"), [(1.5, 1.5), (9.0, 2.0), (0.1, 0.5), (0.6, 0.6)])
@pytest.mark.parametrize("advantage", [1.0, -2.0])
def test_the_gradient_is_weight_times_advantage(
    ratio: float, weight: float, advantage: float
) -> None:
    logprobs, actions = micro_batch([[math.log(ratio) - 3.0]], [[-3.0]], advantages=[advantage])
    loss, stats = policy_loss(logprobs, actions, CISPO)
    assert loss.item() == pytest.approx(-weight * advantage * (math.log(ratio) - 3.0))
    assert gradient_of(logprobs, loss) == pytest.approx([-weight * advantage])
    assert stats.num_clipped_low == float(ratio < 0.5)
    assert stats.num_clipped_high == float(ratio > 2.0)


def test_by_default_only_the_upper_bound_holds() -> None:
    logprobs, actions = micro_batch([[-9.0], [9.0]], [[0.0], [0.0]], advantages=[1.0, 1.0])
    loss = policy_loss(logprobs, actions, AlgorithmSpec(policy_loss_type="cispo"))[0]
    assert gradient_of(logprobs, loss) == pytest.approx([-math.exp(-9.0), -6.0])
