"""The tokens that enter the loss, and sums over the sequences they belong to.

Legend: _A the action tokens of a micro-batch, _S its sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_MAX_LOG_RATIO = 20.0
"""exp(20) is still finite in float32 when squared; SkyRL clamps at the same value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTokens:
    """The tokens that enter the loss; every tensor is [A], float32 unless stated otherwise."""

    behaviour_logprobs_A: torch.Tensor
    """As sampled; never computed again."""
    advantages_A: torch.Tensor
    weights_A: torch.Tensor
    """Share of each token in the mini-batch's loss (`token_weights`)."""
    sequences_A: torch.Tensor
    """int64: index of the sequence in the micro-batch; a sequence is never split over two."""
    is_current_A: torch.Tensor | None = None
    """bool: drawn by the policy that the step began with; None where all were."""
    proximal_logprobs_A: torch.Tensor | None = None
    """The learner's own, before the first update of the step; filled where a correction asks."""
    reference_logprobs_A: torch.Tensor | None = None
    """Of the frozen reference model; filled where the loss has a KL term."""

    @property
    def old_logprobs(self) -> torch.Tensor:
        """Denominator of the clipped ratio: the proximal log-probs, else the behaviour's."""
        if self.proximal_logprobs_A is None:
            return self.behaviour_logprobs_A
        return self.proximal_logprobs_A


@dataclass(frozen=True, slots=True, kw_only=True)
class BySequence:
    """Reduces values of tokens by sequence, and broadcasts values of sequences to their tokens."""

    index_A: torch.Tensor
    num_sequences: int

    @classmethod
    def of(cls, actions: ActionTokens) -> BySequence:
        """Return the grouping of a micro-batch's tokens, of which there is at least one."""
        index_A = actions.sequences_A
        return cls(index_A=index_A, num_sequences=int(index_A.max()) + 1)

    def sums(self, values_A: torch.Tensor) -> torch.Tensor:
        """Sum over the tokens of each sequence."""
        return values_A.new_zeros(self.num_sequences).index_add(0, self.index_A, values_A)

    def means(self, values_A: torch.Tensor) -> torch.Tensor:
        """Mean over the tokens of each sequence."""
        return self.sums(values_A) / self.sums(torch.ones_like(values_A))

    def maxima(self, values_A: torch.Tensor) -> torch.Tensor:
        """Largest value of each sequence."""
        lowest = values_A.new_full((self.num_sequences,), -torch.inf)
        return lowest.scatter_reduce(0, self.index_A, values_A, "amax")

    def to_tokens(self, values_S: torch.Tensor) -> torch.Tensor:
        """Give every token [A] the value of its sequence."""
        return values_S.index_select(0, self.index_A)


def ratio(log_ratio: torch.Tensor) -> torch.Tensor:
    """exp(log_ratio), bounded so that its square stays finite in float32."""
    return log_ratio.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
