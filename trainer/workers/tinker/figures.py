"""Metrics of a step on a server, computed from the log-probs that it returned.

The same code as the learner's own (`policy_loss`, `summary`) computes it, under the same names.
What would need the scores of the whole vocabulary (`policy/policy_entropy`) is not there.

Legend: _A the action tokens of a mini-batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.action_tokens import ActionColumns
from trainer.algo.loss.objective import objective_of
from trainer.algo.loss.stats import LossStats
from trainer.algo.sequences import Batch, SequenceValues, TrainingSequence
from trainer.errors import LearnerError
from trainer.learners.update.summary import Update, summary
from trainer.learners.update.token_values import packed

_GRAD_NORM = "grad_norm"
"""Suffix of a server's own metric of the gradient's norm, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedUpdate:
    """One optimizer step of the server."""

    stats: LossStats
    grad_norm: float | None
    """None where the server does not report it."""

    @property
    def is_finite(self) -> bool:
        """True when the loss, and the norm where it is known, are finite."""
        return math.isfinite(self.stats.loss) and math.isfinite(self.grad_norm or 0.0)


def figures_of(
    sequences: Sequence[TrainingSequence],
    logprobs: Sequence[Sequence[float]],
    algorithm: AlgorithmSpec,
    *,
    max_sequence_length: int,
    version: int,
    optim_metrics: Mapping[str, float],
) -> ServedUpdate:
    """Return the figures of a mini-batch; `logprobs` has one list for each sequence, [T-1].

    `version` is that of the policy that the step began with.

    Raises:
        LearnerError: the server scored another number of sequences or tokens.
    """
    if [len(each) for each in logprobs] != [len(each.token_ids) - 1 for each in sequences]:
        raise LearnerError("the Tinker server did not score each token of each sequence once")
    objective = objective_of(algorithm, max_sequence_length=max_sequence_length)
    columns, now = ActionColumns(), []
    streams = objective.streams_of(sequences, version=version)
    for sequence, scores, own in zip(sequences, logprobs, streams, strict=True):
        places = [at for at, drawn in enumerate(sequence.action_mask) if drawn]
        columns.add(own, places)
        now += [scores[at - 1] for at in places]
    with torch.no_grad():
        _, stats = objective.loss(torch.tensor(now), columns.packed(torch.device("cpu")))
    norms = [value for name, value in optim_metrics.items() if name.endswith(_GRAD_NORM)]
    return ServedUpdate(stats=stats, grad_norm=norms[0] if norms else None)


def values_of(
    sequences: Sequence[TrainingSequence],
    logprobs: Sequence[Sequence[float]],
    *,
    num_updates: int,
) -> Iterator[SequenceValues]:
    """Yield the values of each sequence's tokens; `logprobs` as for `figures_of`.

    The server scored them after `num_updates` updates of the step.
    """
    for sequence, scores in zip(sequences, logprobs, strict=True):
        gaps = [
            scores[at - 1] - sequence.logprobs[at]
            for at, drawn in enumerate(sequence.action_mask)
            if drawn
        ]
        yield SequenceValues(
            rollout_id=sequence.rollout_id,
            length=len(sequence.token_ids),
            gaps=packed(torch.tensor(gaps)),
            entropies=None,
            num_updates=num_updates,
        )


def metrics_of(
    updates: Sequence[ServedUpdate], batch: Batch, algorithm: AlgorithmSpec, *, seconds: float
) -> dict[str, float]:
    """Metrics of a step's updates, of which there is at least one."""
    norms = [each.grad_norm for each in updates if each.grad_norm is not None]
    metrics = summary(
        [Update(stats=each.stats, grad_norm=each.grad_norm or 0.0) for each in updates], algorithm
    )
    del metrics["policy/policy_entropy"]
    if len(norms) < len(updates):
        del metrics["policy/grad_norm"]
    num_tokens = sum(len(each.token_ids) for part in batch.mini_batches for each in part)
    return metrics | {"policy/tokens_per_second": num_tokens / seconds}
