"""The sequence's ratio by hand, and the gradient against the paper's own formula."""

from __future__ import annotations

import math

import pytest
import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.algo.loss.micro import gradient_of, micro_batch
from trainer.algo.loss.gspo import gspo
from trainer.algo.loss.loss import policy_loss

GSPO = AlgorithmSpec(policy_loss_type="gspo", loss_reduction="sequence_mean")


def test_all_tokens_of_a_sequence_share_its_geometric_mean() -> None:
    # log-ratios 0.3 and -0.1 of one sequence: s = exp(0.1); the other one: exp(0.2)
    now, behaviour = [[-0.7, -1.1], [-0.8]], [[-1.0, -1.0], [-1.0]]
    logprobs, actions = micro_batch(now, behaviour, advantages=[1.0, -1.0])
    losses = gspo(logprobs, actions, GSPO).losses_A
    expected = [-math.exp(0.1), -math.exp(0.1), math.exp(0.2)]
    assert losses.tolist() == pytest.approx(expected)


def test_a_clipped_sequence_has_no_gradient_in_any_token() -> None:
    # the first token alone would not be clipped; its sequence is
    now, behaviour = [[-1.0, -0.2], [-1.0]], [[-1.0, -1.0], [-1.0]]
    logprobs, actions = micro_batch(now, behaviour, advantages=[1.0, 1.0], weight=0.5)
    loss, stats = policy_loss(logprobs, actions, GSPO)
    gradient = gradient_of(logprobs, loss)
    assert gradient[:2] == [0.0, 0.0]
    assert gradient[2] == -0.5
    assert (stats.num_clipped_high, stats.num_clipped_low) == (2.0, 0.0)


def test_the_gradient_is_that_of_the_papers_objective() -> None:
    """Equation 5 written out, with the ratio differentiable as a whole."""
    now = torch.tensor([-0.9, -1.2, -0.6], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([-1.0, -1.0, -0.8], dtype=torch.float64)
    advantage = -0.7
    s = (now - old).mean().exp()
    (expected,) = torch.autograd.grad(-(s * advantage), now)
    logprobs, actions = micro_batch(
        [now.tolist()], [old.tolist()], advantages=[advantage], weight=1 / 3
    )
    loss = policy_loss(logprobs, actions, GSPO)[0]
    assert loss.item() == pytest.approx(-(s * advantage).item())
    assert gradient_of(logprobs, loss) == pytest.approx(expected.tolist())
