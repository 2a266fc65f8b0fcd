"""The three estimators by hand, what they are on average, and which way they push."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from tests.trainer.algo.loss.micro import gradient_of, micro_batch
from trainer.algo.loss.divergence import divergence
from trainer.algo.loss.loss import policy_loss

Kind = Literal["k1", "k2", "k3"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("k1", [1.0, -1.0, 0.0]),
        ("k2", [0.5, 0.5, 0.0]),
        ("k3", [math.exp(-1.0), math.e - 2.0, 0.0]),
    ],
)
def test_each_estimator_by_hand(kind: Kind, expected: list[float]) -> None:
    policy = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64)
    other = torch.tensor([-2.0, -1.0, -3.0], dtype=torch.float64)
    assert divergence(policy, other, kind).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(kind: Kind) -> None:
    """Summed over a whole vocabulary, weighted by the policy, they are the divergence itself."""
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    p, q = logits.log_softmax(-1)
    exact = (p.exp() * (p - q)).sum().item()
    assert (p.exp() * divergence(p, q, kind)).sum().item() == pytest.approx(exact)


def test_only_k2_and_k3_pull_towards_the_reference_from_both_sides() -> None:
    def slopes(kind: Kind) -> list[float]:
        algorithm = AlgorithmSpec(use_kl_loss=True, kl_loss_coef=1.0, kl_estimator_type=kind)
        logprobs, actions = micro_batch(
            [[-1.0, -1.0]], [[-1.0, -1.0]], advantages=[0.0], reference=[[-2.0, -0.5]]
        )
        return gradient_of(logprobs, policy_loss(logprobs, actions, algorithm)[0])

    assert slopes("k2") == pytest.approx([1.0, -0.5])
    assert slopes("k3") == pytest.approx([1.0 - math.exp(-1.0), 1.0 - math.exp(0.5)])
    assert slopes("k1") == pytest.approx([1.0, 1.0])


def test_the_gradient_of_k2_is_on_average_that_of_the_divergence() -> None:
    logits = torch.randn(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits.requires_grad_()
    q = torch.randn(20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    q = q.log_softmax(-1)
    p = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad((p.exp() * (p - q)).sum(), logits, retain_graph=True)
    on_policy = (p.exp().detach() * divergence(p, q, "k2")).sum()
    (estimated,) = torch.autograd.grad(on_policy, logits)
    torch.testing.assert_close(estimated, exact)


def test_the_loss_is_policy_plus_coefficient_times_divergence() -> None:
    algorithm = AlgorithmSpec(use_kl_loss=True, kl_loss_coef=0.5, kl_estimator_type="k2")
    logprobs, actions = micro_batch(
        [[-1.0, -2.0], [-1.0]],
        [[-1.0, -2.0], [-1.0]],
        advantages=[1.0, -2.0],
        weight=1 / 3,
        reference=[[-3.0, -2.0], [-2.0]],
    )
    loss, stats = policy_loss(logprobs, actions, algorithm)
    assert stats.policy_loss == pytest.approx(0.0)
    assert stats.kl_loss == pytest.approx((2.0 + 0.0 + 0.5) / 3)
    assert loss.item() == pytest.approx(0.5 * 2.5 / 3)
    assert stats.kl == pytest.approx(2.5)
    assert stats.sequence_kl_max == pytest.approx(2.0 + 0.5)


def test_an_absurd_distance_stays_finite_in_float32() -> None:
    far = divergence(torch.tensor([-300.0]), torch.tensor([-1.0]), "k3")
    assert torch.isfinite(far).all()
    assert far.item() > 1e8


def test_the_largest_divergence_of_a_sequence_has_no_sign() -> None:
    algorithm = AlgorithmSpec(use_kl_loss=True, kl_estimator_type="k1")
    logprobs, actions = micro_batch(
        [[-1.0, -2.0], [-1.0]], [[-1.0, -2.0], [-1.0]], advantages=[1.0, 1.0],
        reference=[[-0.5, -5.0], [-0.25]],
    )  # fmt: skip
    stats = policy_loss(logprobs, actions, algorithm)[1]
    assert stats.kl == pytest.approx(-0.5 + 3.0 - 0.75)
    assert stats.sequence_kl_max == pytest.approx(3.0 + 0.75)
