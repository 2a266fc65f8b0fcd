"""Cross-entropy: the objective of imitation, over the tokens that somebody else wrote.

Legend: _A the action tokens of a micro-batch.
"""

from __future__ import annotations

import torch

from trainer.algo.loss.action_tokens import ActionTokens
from trainer.algo.loss.stats import LossStats, loss_stats


def cross_entropy(
    logprobs_A: torch.Tensor, actions: ActionTokens
) -> tuple[torch.Tensor, LossStats]:
    """Compute the micro-batch's part of the mini-batch loss (a scalar, nats) and its figures.

    The sum of -log pi over the demonstrated tokens, each by its weight: with `token_mean` the mean
    over all of the mini-batch, however it is cut. Neither advantages nor behaviour log-probs enter.
    """
    loss = -(actions.weights_A * logprobs_A).sum()
    num_sequences = int(actions.sequences_A.max()) + 1
    figures = {"loss": loss, "policy_loss": loss}
    return loss, loss_stats(figures, num_tokens=len(logprobs_A), num_sequences=num_sequences)
