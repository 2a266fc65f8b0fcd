"""The objective of the learner: a loss, the streams that it reads, the policies that score for it.

The learner carries all of it without knowing a name. Legend: _A the action tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.action_tokens import (
    ADVANTAGES,
    BEHAVIOUR_LOGPROBS,
    IS_CURRENT,
    WEIGHTS,
    ActionTokens,
)
from trainer.algo.loss.cross_entropy import cross_entropy
from trainer.algo.loss.loss import needs_proximal, needs_reference, policy_loss, variant_of
from trainer.algo.loss.reduction import token_weights
from trainer.algo.loss.stats import LossStats
from trainer.algo.sequences import TrainingSequence
from trainer.algo.streams import Stream, Streams, Values
from trainer.errors import LearnerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Log-probs that the learner computes before the first update of a step."""

    stream: str
    """Name under which the loss reads them."""
    policy: Literal["current", "start"]
    """`current`: the policy that the step begins with. `start`: the one that training started
    from, which the learner then keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss with all that it reads; the learner needs nothing else of an algorithm."""

    loss: Callable[[torch.Tensor, ActionTokens], tuple[torch.Tensor, LossStats]]
    """Of the policy's log-probs now [A], with gradient: the micro-batch's part of the mini-batch's
    loss (a scalar), and its figures."""
    weights: Callable[[Sequence[TrainingSequence]], Sequence[float]]
    """Weight of each action token of each sequence of a mini-batch."""
    scorings: tuple[Scoring, ...] = ()
    own_streams: frozenset[Stream] = frozenset()
    """Streams that the batch has to bring along."""

    @property
    def needs_start(self) -> bool:
        """The policy that training started from has to be kept."""
        return any(scoring.policy == "start" for scoring in self.scorings)

    def streams_of(self, sequences: Sequence[TrainingSequence], *, version: int) -> list[Streams]:
        """Return what each sequence of a mini-batch has; `version` is that of the policy now.

        Raises:
            LearnerError: the batch was built without a stream that the loss reads.
        """
        missing = {s.name for each in sequences for s in self.own_streams - each.streams.keys()}
        if missing:
            raise LearnerError(f"the batch lacks what the loss reads: {', '.join(sorted(missing))}")
        return policy_streams(sequences, self.weights(sequences), version=version)


def policy_streams(
    sequences: Sequence[TrainingSequence], weights: Sequence[float], *, version: int = 0
) -> list[Streams]:
    """Return the streams of a mini-batch's sequences: those of every loss, and their own."""
    return [
        {
            BEHAVIOUR_LOGPROBS: BEHAVIOUR_LOGPROBS.values(each.logprobs, len(each.token_ids)),
            ADVANTAGES: ADVANTAGES.values(each.advantage, 1),
            WEIGHTS: WEIGHTS.values(weight, 1),
            IS_CURRENT: _is_current(each, version),
            **each.streams,
        }
        for each, weight in zip(sequences, weights, strict=True)
    ]


def _is_current(sequence: TrainingSequence, version: int) -> Values:
    if not sequence.weight_versions:
        return np.ones(len(sequence.token_ids), dtype=np.bool_)
    return np.equal(sequence.weight_versions, version)


def objective_of(
    algorithm: AlgorithmSpec, *, max_sequence_length: int, imitates: bool = False
) -> Objective:
    """Return the objective of a spec; `imitates` is that of demonstrations."""
    weights = partial(token_weights, algorithm=algorithm, max_sequence_length=max_sequence_length)
    if imitates:
        return Objective(loss=cross_entropy, weights=weights)
    scorings = []
    if needs_proximal(algorithm):
        scorings.append(Scoring(stream="proximal_logprobs", policy="current"))
    if needs_reference(algorithm):
        scorings.append(Scoring(stream="reference_logprobs", policy="start"))
    return Objective(
        loss=partial(policy_loss, algorithm=algorithm),
        weights=weights,
        scorings=tuple(scorings),
        own_streams=frozenset(variant_of(algorithm).streams),
    )
