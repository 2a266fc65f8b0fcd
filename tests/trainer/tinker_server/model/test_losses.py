"""The protocol's losses against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.tinker_server.model.losses import LOSSES

OLD = torch.log(torch.tensor([0.5, 0.5, 0.5, 0.5]))
NOW = torch.log(torch.tensor([0.7, 0.7, 0.3, 0.3]))
"""Ratios 1.4, 1.4, 0.6, 0.6."""
ADVANTAGES = torch.tensor([1.0, -1.0, 1.0, -1.0])
LOW, HIGH = 0.8, 1.2


def loss_of(name: str) -> tuple[float, list[float]]:
    now = NOW.clone().requires_grad_(requires_grad=True)
    given = {"logprobs": OLD, "advantages": ADVANTAGES, "weights": torch.tensor([2.0, 0, 1, 0])}
    loss = LOSSES[name](now, given, LOW, HIGH)
    torch.autograd.backward(loss)
    assert now.grad is not None
    return loss.item(), now.grad.tolist()


def test_cross_entropy_is_the_weighted_sum() -> None:
    loss, slopes = loss_of("cross_entropy")
    assert loss == pytest.approx(-2.0 * math.log(0.7) - math.log(0.3))
    assert slopes == pytest.approx([-2.0, 0.0, -1.0, 0.0])


def test_importance_sampling_weighs_each_advantage_by_its_ratio() -> None:
    loss, slopes = loss_of("importance_sampling")
    assert loss == pytest.approx(-(1.4 - 1.4 + 0.6 - 0.6), abs=1e-6)
    assert slopes == pytest.approx([-1.4, 1.4, -0.6, 0.6])


def test_ppo_stops_where_going_on_would_pay() -> None:
    loss, slopes = loss_of("ppo")
    # A good token that is likelier by enough, and a bad one that is rarer by enough, are bounded.
    assert loss == pytest.approx(-(1.2 - 1.4 + 0.6 - 0.8))
    assert slopes == pytest.approx([0.0, 1.4, -0.6, 0.0])


def test_cispo_bounds_the_weight_and_keeps_every_gradient() -> None:
    loss, slopes = loss_of("cispo")
    assert loss == pytest.approx(
        -(1.2 * math.log(0.7) - 1.2 * math.log(0.7) + 0.8 * math.log(0.3) - 0.8 * math.log(0.3)),
        abs=1e-6,
    )
    assert slopes == pytest.approx([-1.2, 1.2, -0.8, 0.8])
