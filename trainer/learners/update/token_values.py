"""The learner's values of each token, from the forward pass that the update needs anyway.

Legend: _A the action tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch

from trainer.algo.sequences import SequenceValues
from trainer.learners.packing.packing import MicroBatch

BYTES_PER_VALUE = 2
"""Of a float16."""
_LARGEST = torch.finfo(torch.float16).max


def token_values(
    micro: MicroBatch, logprobs_A: torch.Tensor, entropies_A: torch.Tensor, *, num_updates: int
) -> Iterator[SequenceValues]:
    """Yield the values of each sequence of a micro-batch that is not empty.

    `logprobs_A` and `entropies_A`, float32, come from the policy after `num_updates` updates of
    the step. Log-probs of the policy that the step began with are preferred, if the loss has them:
    no update lies between those and the engine's.
    """
    gaps_A, is_updated = micro.actions.gaps(logprobs_A.detach())
    gaps = packed(gaps_A)
    entropies = packed(entropies_A)
    sizes = (each.num_actions * BYTES_PER_VALUE for each in micro.sequences)
    borders = pairwise(accumulate(sizes, initial=0))
    for sequence, (start, end) in zip(micro.sequences, borders, strict=True):
        yield SequenceValues(
            rollout_id=sequence.rollout_id,
            length=len(sequence.token_ids),
            gaps=gaps[start:end],
            entropies=entropies[start:end],
            num_updates=num_updates if is_updated else 0,
        )


def packed(values: torch.Tensor) -> bytes:
    """Return a vector as little-endian float16; what float16 cannot hold becomes its largest."""
    bounded = values.detach().clamp(-_LARGEST, _LARGEST).to(torch.float16)
    return bounded.cpu().numpy().astype("<f2").tobytes()
