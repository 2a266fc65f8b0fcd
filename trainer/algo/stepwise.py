"""One training sequence per model turn instead of one per rollout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from trainer.algo.sequences import TrainingSequence


def turns_of(sequence: TrainingSequence) -> Iterator[TrainingSequence]:
    """Return a sequence for each turn: all tokens up to its end, only its own in the loss.

    A turn is a run of tokens that the policy drew. Advantage and prompt stay those of the rollout,
    so turns of one prompt still share its computation.
    """
    start = 0
    for is_turn, run in groupby(sequence.action_mask):
        end = start + sum(1 for _ in run)
        if is_turn:
            yield replace(
                sequence,
                token_ids=sequence.token_ids[:end],
                action_mask=(False,) * start + (True,) * (end - start),
                logprobs=(0.0,) * start + sequence.logprobs[start:end],
                weight_versions=sequence.weight_versions[:end],
                streams={
                    stream: stream.until(values, end) for stream, values in sequence.streams.items()
                },
            )
        start = end
