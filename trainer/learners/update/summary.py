"""Metrics of a training step, under the names of SkyRL and Fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hillclimb.spec.training.algorithm import AlgorithmSpec, OffPolicyCorrectionSpec
from trainer.algo.loss.stats import LossStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One optimizer step, summed over micro-batches and ranks."""

    stats: LossStats = field(default_factory=LossStats)
    entropy: float = 0.0
    """Summed over the action tokens."""
    flops: float = 0.0
    scoring_flops: float = 0.0
    """Of scoring by the proximal and reference policies."""
    grad_norm: float = 0.0
    """Of the whole mini-batch, before clipping."""

    def __add__(self, other: Update) -> Update:
        """Return the sums over both."""
        return Update(
            stats=self.stats + other.stats,
            entropy=self.entropy + other.entropy,
            flops=self.flops + other.flops,
            scoring_flops=self.scoring_flops + other.scoring_flops,
            grad_norm=self.grad_norm + other.grad_norm,
        )


def summary(updates: Sequence[Update], algorithm: AlgorithmSpec) -> dict[str, float]:
    """Compute the metrics of the step's updates, of which there is at least one.

    Losses are means over the updates, everything else is over all tokens of the step; figures of
    a part of the loss are reported where the spec enables that part.
    """
    total, num = sum(updates, Update()), len(updates)
    stats, first = total.stats, updates[0].stats
    metrics = {
        "policy/final_loss": stats.loss / num,
        "policy/policy_loss": stats.policy_loss / num,
        "policy/ppo_clip_ratio": stats.clip_ratio,
        "policy/ppo_clip_ratio_low": stats.num_clipped_low / stats.num_tokens,
        "policy/ppo_clip_ratio_high": stats.num_clipped_high / stats.num_tokens,
        "policy/policy_entropy": total.entropy / stats.num_tokens,
        "policy/approx_kl": stats.behaviour_kl / stats.num_tokens,
        "policy/grad_norm": total.grad_norm / num,
        "policy/effective_sample_share": stats.effective_sample_share,
        "policy/num_action_tokens": float(stats.num_tokens),
        "policy/response_length": stats.num_tokens / stats.num_sequences,
    }
    if first.num_current_tokens:
        metrics |= {
            "policy/rollout_train_logprobs_abs_diff_mean": first.mean_abs_logprob_diff,
            "policy/rollout_train_logprobs_abs_diff_std": first.std_abs_logprob_diff,
            "policy/rollout_train_logprobs_abs_diff_max": first.max_abs_logprob_diff,
        }
    if algorithm.policy_loss_type == "dual_clip":
        metrics["policy/dual_clip_ratio"] = stats.num_dual_clipped / stats.num_tokens
    if algorithm.use_kl_loss:
        metrics |= {
            "policy/policy_kl": stats.kl_loss / num,
            "loss/avg_kl": stats.kl / stats.num_tokens,
            "loss/avg_kl_max": stats.sequence_kl_max / stats.num_sequences,
            "loss/kl_loss_coef": algorithm.kl_loss_coef,
        }
    return metrics | _corrections(stats, algorithm.off_policy_correction)


def _corrections(stats: LossStats, spec: OffPolicyCorrectionSpec) -> dict[str, float]:
    metrics: dict[str, float] = {}
    if spec.tis_ratio_type is not None:
        is_token = spec.tis_ratio_type == "token"
        name = "tis_token_clip_high_ratio" if is_token else "tis_seq_clip_high_ratio"
        total = stats.num_tokens if is_token else stats.num_sequences
        metrics |= {
            f"policy/{name}": stats.num_tis_truncated / total,
            "policy/tis_weight_mean": stats.tis_weight / stats.num_tokens,
            "policy/is_ratio_max": stats.max_correction_ratio,
        }
    if spec.sequence_mask_metric is not None:
        kind = "geo" if spec.sequence_mask_metric == "geometric" else "product"
        low, high = stats.num_masked_low, stats.num_masked_high
        metrics |= {
            f"policy/{kind}_sequence_mask_masked_ratio": (low + high) / stats.num_sequences,
            f"policy/{kind}_sequence_mask_under_low_ratio": low / stats.num_sequences,
            f"policy/{kind}_sequence_mask_over_high_ratio": high / stats.num_sequences,
        }
    return metrics


def speed_metrics(
    *,
    num_tokens: int,
    flops: float,
    seconds: float,
    update_s: float,
    num_gpus: int,
    peak_flops: float | None,
) -> dict[str, float]:
    """Compute trained tokens per second, and MFU where the GPU's peak is known.

    `update_s` is the part of `seconds` that the updates took; `flops` are those of the updates.
    """
    metrics = {"policy/tokens_per_second": num_tokens / seconds}
    if num_gpus:
        metrics["policy/tokens_per_second_per_gpu"] = num_tokens / seconds / num_gpus
        metrics["trainer/tokens_per_second_per_gpu"] = num_tokens / update_s / num_gpus
    if num_gpus and peak_flops is not None:
        metrics["policy/mfu"] = flops / update_s / num_gpus / peak_flops
    return metrics
