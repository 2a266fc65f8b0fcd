"""PPO's clipped ratio, the surrogate of GRPO, and its second bound.

Legend: _A the action tokens of a micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.action_tokens import ActionTokens, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """The policy's loss per token, and which tokens it bounded; all [A], masks bool."""

    losses_A: torch.Tensor
    """To be minimised; with gradient."""
    clipped_low_A: torch.Tensor
    """True where the lower clip holds."""
    clipped_high_A: torch.Tensor
    """True where the upper clip holds."""
    dual_clipped_A: torch.Tensor
    """True where `clip_ratio_c` holds."""


def regular(logprobs_A: torch.Tensor, actions: ActionTokens, algorithm: AlgorithmSpec) -> Surrogate:
    """The clipped surrogate of each token's own ratio."""
    ratio_A = ratio(logprobs_A - actions.old_logprobs)
    return clipped_surrogate(ratio_A, actions.advantages_A, algorithm)


def dual_clip(
    logprobs_A: torch.Tensor, actions: ActionTokens, algorithm: AlgorithmSpec
) -> Surrogate:
    """`regular`, but at most -clip_ratio_c x advantage where the advantage is negative.

    Without it one token that became far likelier and turned out bad outweighs the mini-batch.

    Source: Ye et al. 2019 (arXiv:1912.09729, equation 5).
    """
    plain = regular(logprobs_A, actions, algorithm)
    ceiling_A = -algorithm.clip_ratio_c * actions.advantages_A
    holds_A = (actions.advantages_A < 0.0) & (plain.losses_A > ceiling_A)
    return replace(
        plain,
        losses_A=torch.where(holds_A, ceiling_A, plain.losses_A),
        dual_clipped_A=holds_A,
    )


def clipped_surrogate(
    ratio_A: torch.Tensor, advantages_A: torch.Tensor, algorithm: AlgorithmSpec
) -> Surrogate:
    """-min(ratio x advantage, clip(ratio, 1 - eps_low, 1 + eps_high) x advantage).

    Source: PPO (arXiv:1707.06347, equation 7) with DAPO's two clips (arXiv:2503.14476, eq. 10).
    """
    low, high = 1.0 - algorithm.eps_clip_low, 1.0 + algorithm.eps_clip_high
    free_A, bound_A = ratio_A * advantages_A, ratio_A.clamp(low, high) * advantages_A
    holds_A = bound_A < free_A
    return Surrogate(
        losses_A=-torch.minimum(free_A, bound_A),
        clipped_low_A=holds_A & (ratio_A < low),
        clipped_high_A=holds_A & (ratio_A > high),
        dual_clipped_A=torch.zeros_like(holds_A),
    )
