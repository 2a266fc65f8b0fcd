"""GSPO: one ratio per sequence, clipped as a whole.

Legend: _A the action tokens of a micro-batch.
"""

from __future__ import annotations

import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.action_tokens import ActionTokens, BySequence, ratio
from trainer.algo.loss.clipped import Surrogate, clipped_surrogate


def gspo(logprobs_A: torch.Tensor, actions: ActionTokens, algorithm: AlgorithmSpec) -> Surrogate:
    """The clipped surrogate of s = exp(mean over the sequence of log pi / pi_old), at each token.

    Each token carries the sequence's s as value and its own log-prob as gradient (the paper's
    GSPO-token form), so that with `sequence_mean` value and gradient are those of the paper's
    equations 5 and 10: advantage x s x mean over the sequence of the gradients of log pi.

    Source: Zheng et al. 2025 (arXiv:2507.18071, sections 4.1 to 4.3).
    """
    by_sequence = BySequence.of(actions)
    log_ratios_A = (logprobs_A - actions.old_logprobs).detach()
    values_A = by_sequence.to_tokens(ratio(by_sequence.means(log_ratios_A)))
    # 1 in value, the log-prob in gradient.
    carrier_A = (logprobs_A - logprobs_A.detach()).exp()
    return clipped_surrogate(values_A * carrier_A, actions.advantages_A, algorithm)
