"""The clipped policy-gradient surrogate, exact over the mini-batch whatever the micro-batches.

Legend: _A the action tokens of a micro-batch, B the sequences of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainer.algo.batch import TrainingSequence
from trainer.contract.sections import AlgorithmSpec

_MAX_LOG_RATIO = 20.0
"""exp(20) is still finite in float32 when squared; SkyRL clamps at the same value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The tokens that enter the loss; every tensor is [A], float32 where not said."""

    behaviour_logprobs_A: torch.Tensor
    """As sampled: the denominator of the ratio is never computed again."""
    advantages_A: torch.Tensor
    weights_A: torch.Tensor
    """Share of each token in the mini-batch's loss (`token_weights`)."""
    sequences_A: torch.Tensor
    """int64: index of the sequence in the micro-batch; a sequence is never split over two."""
    proximal_logprobs_A: torch.Tensor | None = None
    """The learner's own, before the first update of the step; filled where a correction asks."""
    reference_logprobs_A: torch.Tensor | None = None
    """Of the frozen reference model; filled where the loss has a KL term."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStats:
    """Sums over tokens, so that micro-batches add up to exact mini-batch figures."""

    num_tokens: int = 0
    loss: float = 0.0
    num_clipped: float = 0.0
    ratio: float = 0.0
    ratio_squared: float = 0.0
    abs_logprob_diff: float = 0.0
    max_abs_logprob_diff: float = 0.0

    def __add__(self, other: LossStats) -> LossStats:
        """Return the sums over both."""
        return LossStats(
            num_tokens=self.num_tokens + other.num_tokens,
            loss=self.loss + other.loss,
            num_clipped=self.num_clipped + other.num_clipped,
            ratio=self.ratio + other.ratio,
            ratio_squared=self.ratio_squared + other.ratio_squared,
            abs_logprob_diff=self.abs_logprob_diff + other.abs_logprob_diff,
            max_abs_logprob_diff=max(self.max_abs_logprob_diff, other.max_abs_logprob_diff),
        )

    @property
    def clip_ratio(self) -> float:
        """Share of tokens whose gradient the clip cut off."""
        return self.num_clipped / self.num_tokens

    @property
    def effective_sample_share(self) -> float:
        """Kish's effective sample size of the ratios over their number: 1 is on-policy."""
        if not self.ratio_squared:
            return 0.0
        return self.ratio**2 / (self.num_tokens * self.ratio_squared)

    @property
    def mean_abs_logprob_diff(self) -> float:
        """Mean |log-prob now - log-prob when sampled|."""
        return self.abs_logprob_diff / self.num_tokens


def token_weights(sequences: Sequence[TrainingSequence], algorithm: AlgorithmSpec) -> list[float]:
    """Weight of each action token of each of the B sequences; over a mini-batch they sum to 1.

    `token_mean`: 1 / (action tokens of the mini-batch). `sequence_mean`: 1 / (B x action tokens of
    the sequence). Rollouts that carry no gradient are not in a mini-batch and do not count.
    """
    counts = [sequence.num_actions for sequence in sequences]
    if algorithm.loss_reduction == "token_mean":
        return [1.0 / sum(counts)] * len(counts)
    return [1.0 / (len(counts) * count) for count in counts]


def policy_loss(
    logprobs_A: torch.Tensor, actions: Actions, algorithm: AlgorithmSpec
) -> tuple[torch.Tensor, LossStats]:
    """The micro-batch's part of the mini-batch loss (a scalar to minimise), and its figures.

    Per token: -min(ratio x advantage, clip(ratio, 1 - eps_low, 1 + eps_high) x advantage).

    Source: PPO (arXiv:1707.06347, equation 7) with DAPO's two clips (arXiv:2503.14476, eq. 10).
    """
    log_ratio_A = logprobs_A - actions.behaviour_logprobs_A
    ratio_A = log_ratio_A.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    clipped_A = ratio_A.clamp(1.0 - algorithm.eps_clip_low, 1.0 + algorithm.eps_clip_high)
    free_A, bound_A = ratio_A * actions.advantages_A, clipped_A * actions.advantages_A
    loss = -(actions.weights_A * torch.minimum(free_A, bound_A)).sum()
    with torch.no_grad():
        diff_A = log_ratio_A.abs()
        stats = LossStats(
            num_tokens=len(logprobs_A),
            loss=loss.item(),
            num_clipped=(bound_A < free_A).sum().item(),
            ratio=ratio_A.sum().item(),
            ratio_squared=ratio_A.square().sum().item(),
            abs_logprob_diff=diff_A.sum().item(),
            max_abs_logprob_diff=diff_A.max().item() if len(diff_A) else 0.0,
        )
    return loss, stats


def needs_proximal(algorithm: AlgorithmSpec) -> bool:
    """Tell whether the loss compares with the policy that the step began with."""
    del algorithm
    return False


def needs_reference(algorithm: AlgorithmSpec) -> bool:
    """Tell whether the loss compares with the policy that training started from."""
    del algorithm
    return False
