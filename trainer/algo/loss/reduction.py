"""Loss reduction: the share of each token in the loss of its mini-batch."""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.sequences import LossCounts, TrainingSequence


def token_weights(
    sequences: Sequence[TrainingSequence],
    algorithm: AlgorithmSpec,
    *,
    max_sequence_length: int,
) -> list[float]:
    """Weight of each action token of each of the B sequences of a mini-batch.

    The loss of a mini-batch is the sum of its weighted tokens, however it is cut into
    micro-batches. `token_mean`: 1 / (action tokens of the mini-batch). `sequence_mean`: 1 / (B x
    action tokens of the sequence). `seq_mean_token_sum_norm`: 1 / (B x max_sequence_length), which
    does not favour short rollouts (Dr. GRPO, arXiv:2503.20783). Rollouts that carry no gradient
    are not in a mini-batch and do not count, unless the sequences say that they do
    (`TrainingSequence.loss_counts`).
    """
    counts = [sequence.num_actions for sequence in sequences]
    whole = sequences[0].loss_counts if sequences else None
    whole = whole or LossCounts(len(counts), sum(counts))
    if algorithm.loss_reduction == "token_mean":
        return [1.0 / whole.num_actions] * len(counts)
    if algorithm.loss_reduction == "seq_mean_token_sum_norm":
        return [1.0 / (whole.num_sequences * max_sequence_length)] * len(counts)
    return [1.0 / (whole.num_sequences * count) for count in counts]
