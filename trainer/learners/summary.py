"""What a step reports, under the names of SkyRL and Fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer.algo.loss import LossStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One optimizer step, summed over micro-batches and ranks."""

    stats: LossStats = field(default_factory=LossStats)
    entropy: float = 0.0
    """Summed over the action tokens."""
    num_sequences: int = 0
    flops: float = 0.0
    grad_norm: float = 0.0
    """Of the whole mini-batch, before clipping."""

    def __add__(self, other: Update) -> Update:
        """Return the sums over both."""
        return Update(
            stats=self.stats + other.stats,
            entropy=self.entropy + other.entropy,
            num_sequences=self.num_sequences + other.num_sequences,
            flops=self.flops + other.flops,
            grad_norm=self.grad_norm + other.grad_norm,
        )


def summary(updates: Sequence[Update]) -> dict[str, float]:
    """Metrics of the step's updates, of which there is at least one."""
    total, num = sum(updates, Update()), len(updates)
    stats, first = total.stats, updates[0].stats
    return {
        "policy/final_loss": stats.loss / num,
        "policy/ppo_clip_ratio": stats.clip_ratio,
        "policy/policy_entropy": total.entropy / stats.num_tokens,
        "policy/grad_norm": total.grad_norm / num,
        "policy/effective_sample_share": stats.effective_sample_share,
        "policy/num_action_tokens": float(stats.num_tokens),
        "policy/response_length": stats.num_tokens / total.num_sequences,
        "policy/rollout_train_logprobs_abs_diff_mean": first.mean_abs_logprob_diff,
        "policy/rollout_train_logprobs_abs_diff_max": first.max_abs_logprob_diff,
    }


def speed_metrics(
    *, num_tokens: int, flops: float, seconds: float, num_ranks: int, peak_flops: float | None
) -> dict[str, float]:
    """Tokens of the sequences learned from per second; MFU where the device's best is known."""
    metrics = {"policy/tokens_per_second": num_tokens / seconds}
    if peak_flops is not None:
        metrics["policy/tokens_per_second_per_gpu"] = num_tokens / seconds / num_ranks
        metrics["policy/mfu"] = flops / seconds / num_ranks / peak_flops
    return metrics
