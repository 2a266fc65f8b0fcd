"""Imitation, by hand: the mean of -log pi, and a gradient that only knows the weights."""

from __future__ import annotations

import math

import pytest

from tests.trainer.algo.loss.micro import gradient_of, micro_batch
from trainer.algo.loss.cross_entropy import cross_entropy


def test_the_loss_is_the_mean_of_minus_log_pi() -> None:
    # Probabilities 1/2, 1/4, 1/8 over three tokens: (1 + 2 + 3) ln 2 / 3 = 2 ln 2.
    now = [[math.log(1 / 2), math.log(1 / 4)], [math.log(1 / 8)]]
    logprobs, actions = micro_batch(now, [[0.0, 0.0], [0.0]], advantages=[1.0, 1.0], weight=1 / 3)
    loss, stats = cross_entropy(logprobs, actions)
    assert loss.item() == pytest.approx(2.0 * math.log(2.0))
    assert gradient_of(logprobs, loss) == pytest.approx([-1 / 3] * 3)
    assert (stats.num_tokens, stats.num_sequences) == (3, 2)
    assert stats.loss == pytest.approx(2.0 * math.log(2.0))


def test_neither_advantages_nor_behaviour_log_probs_enter() -> None:
    one = micro_batch([[-1.0], [-2.0]], [[-9.0], [3.0]], advantages=[-5.0, 7.0], weight=0.5)
    loss, _ = cross_entropy(*one)
    assert loss.item() == pytest.approx(1.5)
    assert gradient_of(one[0], loss) == pytest.approx([-0.5, -0.5])
