"""Off-policy corrections: weights and masks from r = proximal policy over the one that sampled.

Legend: _A the action tokens of a micro-batch, _S its sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hillclimb.spec.training.algorithm import OffPolicyCorrectionSpec
from trainer.algo.loss.action_tokens import ActionTokens, BySequence, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Factors on every token's policy loss; none of them carries a gradient."""

    factors_A: torch.Tensor
    """Importance weight, 0 where the sequence is masked."""
    tis_weights_A: torch.Tensor
    """Importance weight alone: 1 without one."""
    num_truncated: torch.Tensor
    """Number of truncated weights: of tokens, or of sequences, as `tis_ratio_type` says."""
    masked_low_S: torch.Tensor
    """bool: the sequence is left out because its r is below the bound."""
    masked_high_S: torch.Tensor
    """bool: the sequence is left out because its r is above the bound."""
    max_ratio: torch.Tensor
    """Largest r before the cut; 0 without a weight."""


def correct(actions: ActionTokens, spec: OffPolicyCorrectionSpec) -> Correction:
    """Compute the weights and masks of `spec`; `actions` hold the proximal log-probs.

    Source: truncated importance sampling as in Yao et al. 2025 ("Your efficient RL framework
    secretly brings you off-policy RL training"), masks as in SkyRL's off-policy correction.
    """
    assert actions.proximal_logprobs_A is not None
    by_sequence = BySequence.of(actions)
    log_r_A = (actions.proximal_logprobs_A - actions.behaviour_logprobs_A).detach()
    weights_A, r, limit = _importance(log_r_A, by_sequence, spec)
    low_S, high_S = _masks(log_r_A, by_sequence, spec)
    stays_A = by_sequence.to_tokens(~(low_S | high_S))
    return Correction(
        factors_A=weights_A * stays_A,
        tis_weights_A=weights_A,
        num_truncated=(r > limit).sum(),
        masked_low_S=low_S,
        masked_high_S=high_S,
        max_ratio=r.max(),
    )


def _importance(
    log_r_A: torch.Tensor, by_sequence: BySequence, spec: OffPolicyCorrectionSpec
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Weight of each token [A], the ratios it is cut from ([A] or [S]), and the limit."""
    if spec.tis_ratio_type is None:
        return torch.ones_like(log_r_A), torch.zeros_like(log_r_A), torch.inf
    if spec.tis_ratio_type == "token":
        r_A, limit = ratio(log_r_A), spec.token_tis_ratio_clip_high
        return r_A.clamp(max=limit), r_A, limit
    r_S, limit = ratio(by_sequence.sums(log_r_A)), spec.sequence_tis_ratio_clip_high
    return by_sequence.to_tokens(r_S.clamp(max=limit)), r_S, limit


def _masks(
    log_r_A: torch.Tensor, by_sequence: BySequence, spec: OffPolicyCorrectionSpec
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mask the sequences below and those above the bounds, bool [S] each."""
    if spec.sequence_mask_metric is None:
        none_S = torch.zeros(by_sequence.num_sequences, dtype=torch.bool, device=log_r_A.device)
        return none_S, none_S
    take = by_sequence.sums if spec.sequence_mask_metric == "product" else by_sequence.means
    r_S, (low, high) = ratio(take(log_r_A)), spec.mask_bounds
    return r_S < low, r_S > high
