"""Figures of a micro-batch's loss, as sums: those of a mini-batch are then exact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStats:
    """Sums over action tokens, or over sequences where stated; `max_...` are largest values."""

    num_tokens: int = 0
    num_sequences: int = 0
    loss: float = 0.0
    """What is minimised; like the next two the sum of weighted tokens, already the mean."""
    policy_loss: float = 0.0
    kl_loss: float = 0.0
    """The reduced divergence, before its coefficient."""
    num_clipped_low: float = 0.0
    num_clipped_high: float = 0.0
    num_dual_clipped: float = 0.0
    ratio: float = 0.0
    """Of the policy as it is now over the one that sampled, like the next two."""
    ratio_squared: float = 0.0
    behaviour_kl: float = 0.0
    num_current_tokens: float = 0.0
    """Tokens drawn by the policy that the step began with: over them the next three are."""
    abs_logprob_diff: float = 0.0
    max_abs_logprob_diff: float = 0.0
    squared_logprob_diff: float = 0.0
    kl: float = 0.0
    sequence_kl_max: float = 0.0
    """Sum over sequences of the largest |divergence| of a token."""
    tis_weight: float = 0.0
    """Sum over tokens of the importance weight."""
    num_tis_truncated: float = 0.0
    """Weights that were cut off: of tokens, or of sequences, as `tis_ratio_type` says."""
    max_correction_ratio: float = 0.0
    """Largest r (proximal over behaviour) before it is cut off."""
    num_masked_low: float = 0.0
    """Sequences left out because their r is below the bound."""
    num_masked_high: float = 0.0

    def __add__(self, other: LossStats) -> LossStats:
        """Return the figures of both together."""
        added: dict[str, Any] = {}
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            added[each.name] = max(mine, theirs) if each.name.startswith("max_") else mine + theirs
        return LossStats(**added)

    @property
    def clip_ratio(self) -> float:
        """Share of tokens whose ratio the clip cut off."""
        return (self.num_clipped_low + self.num_clipped_high) / self.num_tokens

    @property
    def effective_sample_share(self) -> float:
        """Kish's effective sample size of the ratios over their number: 1 is on-policy."""
        if not self.ratio_squared:
            return 0.0
        return self.ratio**2 / (self.num_tokens * self.ratio_squared)

    @property
    def mean_abs_logprob_diff(self) -> float:
        """Mean |log-prob now - log-prob when sampled| over the current tokens, if there are any."""
        return self.abs_logprob_diff / self.num_current_tokens

    @property
    def std_abs_logprob_diff(self) -> float:
        """Standard deviation of |log-prob now - log-prob when sampled| over the same tokens."""
        variance = (
            self.squared_logprob_diff / self.num_current_tokens - self.mean_abs_logprob_diff**2
        )
        return math.sqrt(max(variance, 0.0))


def loss_stats(
    figures: Mapping[str, torch.Tensor], *, num_tokens: int, num_sequences: int
) -> LossStats:
    """Return `figures` (scalars, named as the fields of `LossStats`) as numbers.

    They come off the device together: one wait instead of one per figure.
    """
    values = torch.stack([figure.detach().double() for figure in figures.values()]).tolist()
    named: dict[str, Any] = dict(zip(figures, values, strict=True))
    return LossStats(num_tokens=num_tokens, num_sequences=num_sequences, **named)
