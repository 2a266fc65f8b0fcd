"""Importance weights and masks by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from hillclimb.spec.training.algorithm import AlgorithmSpec, OffPolicyCorrectionSpec
from tests.trainer.algo.loss.micro import gradient_of, micro_batch
from trainer.algo.loss.correction import correct
from trainer.algo.loss.loss import needs_proximal, policy_loss
from trainer.algo.loss.stats import LossStats

LOG_RATIOS = [[math.log(1.5), math.log(3.0)], [math.log(0.9), math.log(0.8)]]
"""Of the proximal policy over the one that sampled: products 4.5 and 0.72."""


def factors(**settings: Any) -> list[float]:
    behaviour = [[-4.0, -4.0], [-4.0, -4.0]]
    proximal = [[-4.0 + each for each in row] for row in LOG_RATIOS]
    _, actions = micro_batch(proximal, behaviour, advantages=[1.0, 1.0], proximal=proximal)
    found: list[float] = correct(actions, OffPolicyCorrectionSpec(**settings)).factors_A.tolist()
    return found


def learned(**settings: Any) -> tuple[list[float], LossStats]:
    """Gradient and figures of a first update: the policy is still the proximal one."""
    behaviour = [[-4.0, -4.0], [-4.0, -4.0]]
    proximal = [[-4.0 + each for each in row] for row in LOG_RATIOS]
    logprobs, actions = micro_batch(proximal, behaviour, advantages=[1.0, -1.0], proximal=proximal)
    algorithm = AlgorithmSpec(off_policy_correction=OffPolicyCorrectionSpec(**settings))
    loss, stats = policy_loss(logprobs, actions, algorithm)
    return gradient_of(logprobs, loss), stats


def test_token_weights_are_cut_off_above_only() -> None:
    assert factors(tis_ratio_type="token") == pytest.approx([1.5, 2.0, 0.9, 0.8])
    wide = factors(tis_ratio_type="token", token_tis_ratio_clip_high=9.0)
    assert wide == pytest.approx([1.5, 3.0, 0.9, 0.8])


def test_a_sequence_weight_is_the_product_over_its_tokens() -> None:
    assert factors(tis_ratio_type="sequence") == pytest.approx([4.5, 4.5, 0.72, 0.72])
    tight = factors(tis_ratio_type="sequence", sequence_tis_ratio_clip_high=2.0)
    assert tight == pytest.approx([2.0, 2.0, 0.72, 0.72])


def test_masks_leave_whole_sequences_out() -> None:
    assert factors(sequence_mask_metric="product") == [0.0, 0.0, 1.0, 1.0]
    assert factors(sequence_mask_metric="geometric") == [0.0] * 4
    # geometric means 2.12 and 0.85
    low, high = {"geo_mask_low": 0.84, "geo_mask_high": 2.1}, {"geo_mask_high": 2.2}
    assert factors(sequence_mask_metric="geometric", **low) == [0.0, 0.0, 1.0, 1.0]
    assert factors(sequence_mask_metric="geometric", **high) == [1.0, 1.0, 0.0, 0.0]


def test_weights_and_masks_work_together() -> None:
    both = factors(tis_ratio_type="token", sequence_mask_metric="product")
    assert both == pytest.approx([0.0, 0.0, 0.9, 0.8])


def test_at_the_first_update_the_clipped_ratio_is_one_and_the_weight_is_all_there_is() -> None:
    gradient, stats = learned(tis_ratio_type="token")
    assert gradient == pytest.approx([-1.5, -2.0, 0.9, 0.8])
    assert stats.clip_ratio == 0.0
    assert stats.tis_weight == pytest.approx(5.2)
    assert stats.num_tis_truncated == 1.0
    assert stats.max_correction_ratio == pytest.approx(3.0)


def test_a_masked_sequence_has_no_gradient_and_is_counted_on_its_side() -> None:
    gradient, stats = learned(sequence_mask_metric="product", product_mask_low=0.75)
    assert gradient == [0.0] * 4
    assert (stats.num_masked_low, stats.num_masked_high) == (1.0, 1.0)
    assert stats.num_sequences == 2
    assert stats.num_tis_truncated == 0.0


def test_truncated_sequences_are_counted_as_sequences() -> None:
    assert (
        learned(tis_ratio_type="sequence", sequence_tis_ratio_clip_high=2.0)[1].num_tis_truncated
        == 1.0
    )


def test_a_mask_takes_nothing_from_the_divergence() -> None:
    algorithm = AlgorithmSpec(
        use_kl_loss=True,
        kl_loss_coef=1.0,
        off_policy_correction=OffPolicyCorrectionSpec(sequence_mask_metric="product"),
    )
    logprobs, actions = micro_batch(
        [[-1.0]], [[-9.0]], advantages=[1.0], proximal=[[-1.0]], reference=[[-2.0]]
    )
    loss, stats = policy_loss(logprobs, actions, algorithm)
    assert stats.policy_loss == 0.0
    assert loss.item() == pytest.approx(math.exp(-1.0))


def test_only_corrections_ask_for_the_proximal_policy() -> None:
    assert not needs_proximal(AlgorithmSpec())
    for settings in ({"tis_ratio_type": "token"}, {"sequence_mask_metric": "product"}):
        spec = OffPolicyCorrectionSpec.model_validate(settings)
        assert needs_proximal(AlgorithmSpec(off_policy_correction=spec))


def test_masks_lie_where_the_tokens_do() -> None:
    """`meta` stands for a GPU: it computes nothing, but no other device's tensors mix with it."""
    _, actions = micro_batch([[-1.0]], [[-1.0]], advantages=[1.0], proximal=[[-1.0]])
    assert actions.proximal_logprobs_A is not None
    elsewhere = dataclasses.replace(
        actions,
        behaviour_logprobs_A=actions.behaviour_logprobs_A.to("meta"),
        proximal_logprobs_A=actions.proximal_logprobs_A.to("meta"),
    )
    found = correct(elsewhere, OffPolicyCorrectionSpec())
    assert found.factors_A.device.type == found.masked_low_S.device.type == "meta"
    assert found.masked_high_S.device.type == "meta"
