"""The surrogate against hand-computed numbers and a slow float64 reference in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.action_tokens import ActionTokens
from trainer.algo.loss.loss import policy_loss
from trainer.algo.loss.stats import LossStats

TOKEN = st.tuples(
    st.floats(-8.0, 0.0), st.floats(-8.0, 0.0), st.floats(-3.0, 3.0), st.floats(0.001, 1.0)
)


def actions(
    behaviour: list[float],
    advantages: list[float],
    weights: list[float],
    dtype: torch.dtype = torch.float32,
) -> ActionTokens:
    return ActionTokens(
        behaviour_logprobs_A=torch.tensor(behaviour, dtype=dtype),
        advantages_A=torch.tensor(advantages, dtype=dtype),
        weights_A=torch.tensor(weights, dtype=dtype),
        sequences_A=torch.zeros(len(weights), dtype=torch.int64),
    )


def reference(
    now: list[float], behaviour: list[float], advantages: list[float], weights: list[float]
) -> float:
    return -math.fsum(terms(now, behaviour, advantages, weights))


def terms(
    now: list[float], behaviour: list[float], advantages: list[float], weights: list[float]
) -> list[float]:
    """The weighted surrogate of each token; thousands of either sign can add up to next to 0."""
    found = []
    for new, old, advantage, weight in zip(now, behaviour, advantages, weights, strict=True):
        ratio = math.exp(new - old)
        bounded = max(0.8, min(1.28, ratio))
        found.append(weight * min(ratio * advantage, bounded * advantage))
    return found


def rounding(tokens: list[tuple[float, float, float, float]]) -> float:
    """Bound of the float64 rounding of a sum: relative to its terms, which may cancel."""
    columns = (list(column) for column in zip(*tokens, strict=True))
    return 1e-12 * math.fsum(map(abs, terms(*columns)))


def test_on_policy_the_loss_is_minus_the_weighted_advantage() -> None:
    loss, stats = policy_loss(
        torch.tensor([-1.0, -2.0]), actions([-1.0, -2.0], [2.0, -1.0], [0.5, 0.5]), AlgorithmSpec()
    )
    assert loss.item() == pytest.approx(-0.5)
    assert stats.clip_ratio == 0.0
    assert stats.effective_sample_share == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "has_gradient"),
    [
        (1.27, 1.0, -1.27, True),
        (1.29, 1.0, -1.28, False),
        (1.29, -1.0, 1.29, True),
        (0.81, -1.0, 0.81, True),
        (0.79, -1.0, 0.80, False),
        (0.79, 1.0, -0.79, True),
    ],
)
def test_each_side_of_each_clip(
    ratio: float, advantage: float, loss: float, has_gradient: bool
) -> None:
    logprobs = torch.tensor([math.log(ratio) - 1.0], requires_grad=True)
    found, stats = policy_loss(logprobs, actions([-1.0], [advantage], [1.0]), AlgorithmSpec())
    torch.autograd.backward(found)
    assert found.item() == pytest.approx(loss, rel=1e-5)
    assert logprobs.grad is not None
    assert (logprobs.grad.item() != 0.0) is has_gradient
    assert stats.clip_ratio == (0.0 if has_gradient else 1.0)


def test_both_clips_are_taken_from_the_spec() -> None:
    wide = AlgorithmSpec(eps_clip_low=0.5, eps_clip_high=1.0)
    up = policy_loss(torch.tensor([1.0]), actions([0.0], [1.0], [1.0]), wide)[0]
    down = policy_loss(torch.tensor([-1.0]), actions([0.0], [-1.0], [1.0]), wide)[0]
    assert (up.item(), down.item()) == pytest.approx((-2.0, 0.5))


def test_the_gradient_raises_good_tokens_and_lowers_bad_ones() -> None:
    logprobs = torch.tensor([-1.0, -1.0], requires_grad=True)
    loss, _ = policy_loss(logprobs, actions([-1.0] * 2, [1.0, -1.0], [0.5] * 2), AlgorithmSpec())
    torch.autograd.backward(loss)
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-0.5, 0.5]


@settings(deadline=None)
@given(st.lists(TOKEN, min_size=1, max_size=20))
def test_loss_equals_the_slow_reference(tokens: list[tuple[float, float, float, float]]) -> None:
    now, behaviour, advantages, weights = (list(column) for column in zip(*tokens, strict=True))
    loss, _ = policy_loss(
        torch.tensor(now, dtype=torch.float64),
        actions(behaviour, advantages, weights, torch.float64),
        AlgorithmSpec(),
    )
    expected = reference(now, behaviour, advantages, weights)
    assert loss.item() == pytest.approx(expected, rel=0.0, abs=rounding(tokens))


@settings(deadline=None)
@given(st.lists(TOKEN, min_size=2, max_size=20), st.integers(1, 19))
def test_parts_add_up_to_the_whole(
    tokens: list[tuple[float, float, float, float]], cut: int
) -> None:
    def figures(part: list[tuple[float, float, float, float]]) -> LossStats:
        if not part:
            return LossStats()
        now, behaviour, advantages, weights = (list(column) for column in zip(*part, strict=True))
        inputs = actions(behaviour, advantages, weights, torch.float64)
        return policy_loss(torch.tensor(now, dtype=torch.float64), inputs, AlgorithmSpec())[1]

    whole, parts = figures(tokens), figures(tokens[:cut]) + figures(tokens[cut:])
    assert parts.loss == pytest.approx(whole.loss, rel=0.0, abs=rounding(tokens))
    assert parts.clip_ratio == whole.clip_ratio
    assert parts.max_abs_logprob_diff == whole.max_abs_logprob_diff
    assert parts.mean_abs_logprob_diff == pytest.approx(whole.mean_abs_logprob_diff, rel=1e-12)


def test_effective_sample_share_by_hand() -> None:
    # ratios 1 and 3: (1 + 3)^2 / (2 * (1 + 9)) = 0.8
    _, stats = policy_loss(
        torch.tensor([0.0, math.log(3.0)]), actions([0.0] * 2, [1.0] * 2, [0.5] * 2),
        AlgorithmSpec(),
    )  # fmt: skip
    assert stats.effective_sample_share == pytest.approx(0.8)


def test_an_absurd_ratio_stays_finite() -> None:
    loss, stats = policy_loss(
        torch.tensor([0.0]), actions([-200.0], [-1.0], [1.0]), AlgorithmSpec()
    )
    assert math.isfinite(loss.item())
    assert math.isfinite(stats.ratio_squared)
