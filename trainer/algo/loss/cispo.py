"""CISPO: the ratio as a bounded weight, so that no token loses its gradient.

Legend: _A the action tokens of a micro-batch.
"""

from __future__ import annotations

import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.action_tokens import ActionTokens, ratio
from trainer.algo.loss.clipped import Surrogate


def cispo(logprobs_A: torch.Tensor, actions: ActionTokens, algorithm: AlgorithmSpec) -> Surrogate:
    """-clip(ratio, 1 - eps_low, 1 + eps_high) x advantage x log pi, no gradient through the ratio.

    Source: MiniMax-M1 (arXiv:2506.13585, equations 4 and 5).
    """
    bounds = algorithm.cispo
    low, high = 1.0 - bounds.cispo_eps_clip_low, 1.0 + bounds.cispo_eps_clip_high
    ratio_A = ratio((logprobs_A - actions.old_logprobs).detach())
    is_low_A, is_high_A = ratio_A < low, ratio_A > high
    return Surrogate(
        losses_A=-ratio_A.clamp(low, high) * actions.advantages_A * logprobs_A,
        clipped_low_A=is_low_A,
        clipped_high_A=is_high_A,
        dual_clipped_A=torch.zeros_like(is_low_A),
    )
