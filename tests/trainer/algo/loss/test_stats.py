"""Figures of a micro-batch by hand, their sums over several, and where a bound begins to hold."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec, CispoSpec, OffPolicyCorrectionSpec
from tests.trainer.algo.loss.micro import gradient_of, micro_batch
from trainer.algo.loss.loss import policy_loss
from trainer.algo.loss.stats import LossStats

# Log-ratios 0.5, -1 and 0; the second token was drawn by older weights.
NOW, BEHAVIOUR = [[-1.0, -2.0], [-0.5]], [[-1.5, -1.0], [-0.5]]
OLDER = torch.tensor([True, False, True])


def figures(*, is_current: torch.Tensor | None = None, **algorithm: Any) -> LossStats:
    logprobs, actions = micro_batch(NOW, BEHAVIOUR, advantages=[1.0, -1.0], weight=0.25)
    actions = dataclasses.replace(actions, is_current_A=is_current)
    return policy_loss(logprobs, actions, AlgorithmSpec(**algorithm))[1]


def test_ratios_are_of_all_tokens_over_the_policy_that_drew_them() -> None:
    stats = figures(is_current=OLDER)
    assert (stats.num_tokens, stats.num_sequences) == (3, 2)
    assert stats.ratio == pytest.approx(math.exp(0.5) + math.exp(-1.0) + 1.0)
    assert stats.ratio_squared == pytest.approx(math.e + math.exp(-2.0) + 1.0)
    # k3 of each: ratio - 1 - log-ratio
    assert stats.behaviour_kl == pytest.approx((math.exp(0.5) - 1.5) + math.exp(-1.0))
    share = (math.exp(0.5) + math.exp(-1.0) + 1.0) ** 2 / (3 * (math.e + math.exp(-2.0) + 1.0))
    assert stats.effective_sample_share == pytest.approx(share)
    # min(1.6487, 1.28), min(0.3679, 0.8) and -1, a quarter each
    assert stats.loss == stats.policy_loss == pytest.approx(-(1.28 + math.exp(-1.0) - 1.0) / 4)
    assert (stats.num_clipped_low, stats.num_clipped_high) == (0.0, 1.0)
    assert stats.clip_ratio == pytest.approx(1 / 3)


def test_engine_and_learner_are_compared_on_tokens_of_the_current_weights() -> None:
    stats = figures(is_current=OLDER)
    assert stats.num_current_tokens == 2.0
    assert (stats.abs_logprob_diff, stats.squared_logprob_diff) == (0.5, 0.25)
    assert stats.max_abs_logprob_diff == 0.5
    assert stats.mean_abs_logprob_diff == 0.25
    assert stats.std_abs_logprob_diff == 0.25  # of 0.5 and 0


def test_where_all_tokens_are_current_all_are_compared() -> None:
    stats = figures()
    assert stats.num_current_tokens == 3.0
    assert (stats.abs_logprob_diff, stats.squared_logprob_diff) == (1.5, 1.25)
    assert stats.max_abs_logprob_diff == 1.0
    # of 0.5, 1 and 0: mean 1/2, variance 1.25 / 3 - 1/4
    assert stats.mean_abs_logprob_diff == 0.5
    assert stats.std_abs_logprob_diff == pytest.approx(math.sqrt(1 / 6))


def test_without_a_correction_or_a_divergence_their_figures_are_zero() -> None:
    stats = figures()
    assert (stats.tis_weight, stats.num_tis_truncated, stats.max_correction_ratio) == (0, 0, 0)
    assert (stats.num_masked_low, stats.num_masked_high) == (0, 0)
    assert (stats.kl, stats.kl_loss, stats.sequence_kl_max) == (0, 0, 0)
    assert stats.num_dual_clipped == 0.0


def test_a_correction_and_a_divergence_add_their_figures_to_the_others() -> None:
    """Both policies are the one that sampled, so every weight and ratio of theirs is 1."""
    algorithm = AlgorithmSpec(
        use_kl_loss=True,
        kl_estimator_type="k1",
        off_policy_correction=OffPolicyCorrectionSpec(tis_ratio_type="token"),
    )
    logprobs, actions = micro_batch(
        NOW, BEHAVIOUR, advantages=[1.0, -1.0], weight=0.25, proximal=BEHAVIOUR, reference=BEHAVIOUR
    )
    stats, plain = policy_loss(logprobs, actions, algorithm)[1], figures()
    assert (stats.tis_weight, stats.max_correction_ratio) == (3.0, 1.0)
    assert (stats.kl, stats.kl_loss) == (-0.5, -0.125)
    assert stats.sequence_kl_max == 1.0
    expected = dataclasses.replace(
        plain,
        loss=plain.loss - algorithm.kl_loss_coef * 0.125,
        kl=-0.5,
        kl_loss=-0.125,
        sequence_kl_max=1.0,
        tis_weight=3.0,
        max_correction_ratio=1.0,
    )
    assert dataclasses.asdict(stats) == pytest.approx(dataclasses.asdict(expected), rel=1e-12)


def test_figures_of_two_micro_batches_add_up_and_the_largest_stays_the_largest() -> None:
    names = [each.name for each in dataclasses.fields(LossStats)]
    one = LossStats(**{name: 1.0 + at for at, name in enumerate(names)})
    two = LossStats(**{name: 30.0 - at for at, name in enumerate(names)})
    for both in (one + two, two + one):
        for at, name in enumerate(names):
            found = getattr(both, name)
            if name in {"max_abs_logprob_diff", "max_correction_ratio"}:
                assert found == max(1.0 + at, 30.0 - at)
            else:
                assert found == 31.0


def test_of_no_tokens_no_share_is_effective() -> None:
    assert LossStats().effective_sample_share == 0.0


def test_rounding_makes_no_deviation_of_equal_differences() -> None:
    stats = LossStats(
        num_current_tokens=3.0, abs_logprob_diff=0.3, squared_logprob_diff=0.03 - 1e-15
    )
    assert stats.std_abs_logprob_diff == 0.0


@pytest.mark.parametrize(("log_ratio", "bounded"), [(200.0, 20.0), (-200.0, -20.0), (19.0, 19.0)])
def test_a_log_ratio_is_bounded_by_twenty_on_both_sides(log_ratio: float, bounded: float) -> None:
    logprobs, actions = micro_batch([[0.0]], [[-log_ratio]], advantages=[1.0])
    stats = policy_loss(logprobs, actions, AlgorithmSpec())[1]
    assert stats.ratio == pytest.approx(math.exp(bounded), rel=1e-12)


def test_a_token_that_nothing_is_known_of_is_not_clipped() -> None:
    """With the advantage 0 the bounded term is as large as the free one."""
    logprobs, actions = micro_batch(
        [[math.log(0.5)], [math.log(2.0)]], [[0.0], [0.0]], advantages=[0.0, 0.0]
    )
    stats = policy_loss(logprobs, actions, AlgorithmSpec())[1]
    assert (stats.num_clipped_low, stats.num_clipped_high) == (0.0, 0.0)


def test_the_second_bound_holds_above_c_and_for_bad_tokens_alone() -> None:
    ratio = torch.tensor(0.75, dtype=torch.float64).exp().item()
    dual = AlgorithmSpec(policy_loss_type="dual_clip", clip_ratio_c=ratio)
    logprobs, actions = micro_batch(
        [[0.75], [0.75], [0.76]], [[0.0], [0.0], [0.0]], advantages=[-1.0, 0.5, -0.5]
    )
    loss, stats = policy_loss(logprobs, actions, dual)
    assert stats.num_dual_clipped == 1.0
    assert loss.item() == pytest.approx(ratio - 1.28 * 0.5 + ratio * 0.5)
    assert gradient_of(logprobs, loss) == pytest.approx([ratio, 0.0, 0.0])


def test_a_weight_at_its_bound_is_not_counted_as_bounded() -> None:
    cispo = AlgorithmSpec(
        policy_loss_type="cispo", cispo=CispoSpec(cispo_eps_clip_low=0.0, cispo_eps_clip_high=1.0)
    )
    logprobs, actions = micro_batch([[-1.0]], [[-1.0]], advantages=[1.0])
    stats = policy_loss(logprobs, actions, cispo)[1]
    assert (stats.num_clipped_low, stats.num_clipped_high) == (0.0, 0.0)
    e = torch.tensor(1.0, dtype=torch.float64).exp().item()
    high = CispoSpec(cispo_eps_clip_low=0.0, cispo_eps_clip_high=e - 1.0)
    logprobs, actions = micro_batch([[1.0]], [[0.0]], advantages=[1.0])
    at = AlgorithmSpec(policy_loss_type="cispo", cispo=high)
    assert 1.0 + (e - 1.0) == e
    stats = policy_loss(logprobs, actions, at)[1]
    assert (stats.num_clipped_low, stats.num_clipped_high) == (0.0, 0.0)
    assert stats.num_dual_clipped == 0.0


@pytest.mark.parametrize(
    "settings",
    [
        {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 1.0},
        {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 1.0},
        {"sequence_mask_metric": "product", "product_mask_low": 1.0},
        {"sequence_mask_metric": "product", "product_mask_high": 1.0},
        {"sequence_mask_metric": "geometric", "geo_mask_low": 1.0},
        {"sequence_mask_metric": "geometric", "geo_mask_high": 1.0},
    ],
)
def test_a_correction_leaves_what_lies_at_its_bound_alone(settings: dict[str, Any]) -> None:
    """Both policies agree: r is 1 for every token and every sequence."""
    logprobs, actions = micro_batch(
        [[-1.0, -2.0]], [[-1.0, -2.0]], advantages=[1.0], proximal=[[-1.0, -2.0]]
    )
    algorithm = AlgorithmSpec(off_policy_correction=OffPolicyCorrectionSpec(**settings))
    loss, stats = policy_loss(logprobs, actions, algorithm)
    assert loss.item() == -2.0
    assert stats.tis_weight == 2.0
    assert (stats.num_tis_truncated, stats.num_masked_low, stats.num_masked_high) == (0, 0, 0)
    is_weighted = "tis_ratio_type" in settings
    assert stats.max_correction_ratio == (1.0 if is_weighted else 0.0)
