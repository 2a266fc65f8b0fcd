"""The metrics of a step from made-up sums, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.stats import LossStats
from trainer.learners.update.summary import Update, speed_metrics, summary

FIRST = Update(
    stats=LossStats(
        num_tokens=10, num_sequences=2, loss=1.0, policy_loss=0.8, kl_loss=2.0,
        num_clipped_low=1.0, num_clipped_high=2.0, num_dual_clipped=3.0,
        ratio=10.0, ratio_squared=20.0, behaviour_kl=0.5,
        num_current_tokens=8.0, abs_logprob_diff=4.0, squared_logprob_diff=2.32,
        max_abs_logprob_diff=0.9,
        kl=4.0, sequence_kl_max=3.0, tis_weight=12.0, num_tis_truncated=1.0,
        max_correction_ratio=3.0, num_masked_low=1.0,
    ),
    entropy=15.0, grad_norm=2.0,
)  # fmt: skip
SECOND = Update(
    stats=LossStats(
        num_tokens=30, num_sequences=6, loss=3.0, policy_loss=2.8, kl_loss=4.0,
        num_clipped_low=3.0, num_clipped_high=4.0, ratio=30.0, ratio_squared=60.0,
        behaviour_kl=1.5, num_current_tokens=30.0,
        abs_logprob_diff=99.0, squared_logprob_diff=999.0,
        max_abs_logprob_diff=9.0, kl=8.0, sequence_kl_max=5.0, tis_weight=28.0,
        num_tis_truncated=3.0, max_correction_ratio=2.0, num_masked_high=3.0,
    ),
    entropy=5.0, grad_norm=4.0,
)  # fmt: skip
ALWAYS = {
    "policy/final_loss": 2.0,
    "policy/policy_loss": 1.8,
    "policy/ppo_clip_ratio": 10 / 40,
    "policy/ppo_clip_ratio_low": 4 / 40,
    "policy/ppo_clip_ratio_high": 6 / 40,
    "policy/policy_entropy": 0.5,
    "policy/approx_kl": 0.05,
    "policy/grad_norm": 3.0,
    "policy/effective_sample_share": 40.0**2 / (40 * 80),
    "policy/num_action_tokens": 40.0,
    "policy/response_length": 5.0,
    "policy/rollout_train_logprobs_abs_diff_mean": 0.5,
    "policy/rollout_train_logprobs_abs_diff_std": 0.2,
    "policy/rollout_train_logprobs_abs_diff_max": 0.9,
}


def extra(**algorithm: Any) -> dict[str, float]:
    """What a setting adds."""
    found = summary([FIRST, SECOND], AlgorithmSpec.model_validate(algorithm))
    assert {name: found.pop(name) for name in ALWAYS} == pytest.approx(ALWAYS)
    return found


def test_by_default_nothing_is_reported_of_parts_that_are_off() -> None:
    assert extra() == {}


def test_the_second_bound_has_a_share_of_its_own() -> None:
    assert extra(policy_loss_type="dual_clip") == {"policy/dual_clip_ratio": 3 / 40}


def test_the_divergence_is_a_mean_over_tokens_and_its_largest_one_over_sequences() -> None:
    assert extra(use_kl_loss=True, kl_loss_coef=0.1) == {
        "policy/policy_kl": 3.0,
        "loss/avg_kl": 12 / 40,
        "loss/avg_kl_max": 1.0,
        "loss/kl_loss_coef": 0.1,
    }


@pytest.mark.parametrize(
    ("kind", "name", "share"),
    [("token", "token", 4 / 40), ("sequence", "seq", 4 / 8)],
)
def test_cut_off_weights_are_a_share_of_tokens_or_of_sequences(
    kind: str, name: str, share: float
) -> None:
    assert extra(off_policy_correction={"tis_ratio_type": kind}) == {
        f"policy/tis_{name}_clip_high_ratio": share,
        "policy/tis_weight_mean": 1.0,
        "policy/is_ratio_max": 3.0,
    }


@pytest.mark.parametrize(("metric", "name"), [("geometric", "geo"), ("product", "product")])
def test_masks_are_shares_of_sequences(metric: str, name: str) -> None:
    assert extra(off_policy_correction={"sequence_mask_metric": metric}) == {
        f"policy/{name}_sequence_mask_masked_ratio": 4 / 8,
        f"policy/{name}_sequence_mask_under_low_ratio": 1 / 8,
        f"policy/{name}_sequence_mask_over_high_ratio": 3 / 8,
    }


def test_speed_is_over_the_learners_time_and_skyrls_and_mfu_over_that_of_the_updates() -> None:
    """600 tokens on two GPUs in 10 s, of which 4 s went into scoring, whose FLOPs do not count."""
    found = speed_metrics(
        num_tokens=600, flops=6e12, seconds=10.0, update_s=6.0, num_gpus=2, peak_flops=1e12
    )
    assert found == {
        "policy/tokens_per_second": 60.0,
        "policy/tokens_per_second_per_gpu": 30.0,
        "trainer/tokens_per_second_per_gpu": 50.0,
        "policy/mfu": 0.5,
    }
