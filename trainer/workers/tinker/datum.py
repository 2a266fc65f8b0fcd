"""Converts training sequences to the SDK's `Datum`: the only data code of this backend.

The protocol's losses are sums over tokens (means on some servers). Each token's share in the loss
of the mini-batch (`token_weights`) is therefore multiplied into its advantage, so that a learning
rate means the same as with our learner. The protocol has no mask: a token that is not trained on
has advantage 0.

Legend: T tokens of a sequence; every input of a datum has T - 1 values, one per predicted token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tinker import types

from hillclimb.spec.rules.tinker import LOSSES
from hillclimb.spec.training.algorithm import AlgorithmSpec
from trainer.algo.loss.reduction import token_weights
from trainer.algo.sequences import TrainingSequence
from trainer.errors import LearnerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss of the protocol, with its settings."""

    name: types.LossFnType
    config: dict[str, float]


def loss_of(algorithm: AlgorithmSpec) -> Loss:
    """Return the loss for an algorithm, whose clips are absolute bounds of the ratio here."""
    low, high = algorithm.eps_clip_low, algorithm.eps_clip_high
    if algorithm.policy_loss_type == "cispo":
        low, high = algorithm.cispo.cispo_eps_clip_low, algorithm.cispo.cispo_eps_clip_high
    name: types.LossFnType = "cispo" if LOSSES[algorithm.policy_loss_type] == "cispo" else "ppo"
    bounds = {"clip_low_threshold": 1.0 - low, "clip_high_threshold": 1.0 + high}
    return Loss(name=name, config=bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatumOptions:
    """Settings shared by all data of a run."""

    algorithm: AlgorithmSpec
    max_sequence_length: int
    """As in `token_weights`."""
    vocab_size: int
    is_averaged: bool = False
    """True where the server averages losses over a datum's tokens and over an update's data."""


def data_of(sequences: Sequence[TrainingSequence], options: DatumOptions) -> list[types.Datum]:
    """Return the data of a mini-batch, for one update.

    Raises:
        LearnerError: the server would misread a sequence.
    """
    weights = token_weights(
        sequences, options.algorithm, max_sequence_length=options.max_sequence_length
    )
    if options.is_averaged:
        weights = [
            weight * len(sequences) * (len(sequence.token_ids) - 1)
            for sequence, weight in zip(sequences, weights, strict=True)
        ]
    return [
        _datum(sequence, weight, vocab_size=options.vocab_size)
        for sequence, weight in zip(sequences, weights, strict=True)
    ]


def scored(token_ids: Sequence[int]) -> types.Datum:
    """Return a datum of `cross_entropy` that asks for the log-prob of every token but the first."""
    return types.Datum(
        model_input=types.ModelInput.from_ints(list(token_ids[:-1])),
        loss_fn_inputs={
            "target_tokens": _tensor(np.asarray(token_ids[1:], dtype=np.int64)),
            "weights": _tensor(np.zeros(len(token_ids) - 1, dtype=np.float32)),
        },
    )


def _datum(sequence: TrainingSequence, weight: float, *, vocab_size: int) -> types.Datum:
    _check(sequence, weight, vocab_size)
    mask = np.asarray(sequence.action_mask[1:], dtype=np.float64)
    return types.Datum(
        model_input=types.ModelInput.from_ints(list(sequence.token_ids[:-1])),
        loss_fn_inputs={
            "target_tokens": _tensor(np.asarray(sequence.token_ids[1:], dtype=np.int64)),
            "logprobs": _tensor(np.asarray(sequence.logprobs[1:], dtype=np.float32)),
            "advantages": _tensor((mask * (sequence.advantage * weight)).astype(np.float32)),
        },
    )


def _check(sequence: TrainingSequence, weight: float, vocab_size: int) -> None:
    """Refuse wrong lengths and invalid numbers: a server would accept them and learn from them."""
    lengths = {len(sequence.token_ids), len(sequence.action_mask), len(sequence.logprobs)}
    if len(lengths) != 1 or len(sequence.token_ids) < 2:
        raise LearnerError(f"a sequence of tokens, mask and log-probs of {sorted(lengths)} tokens")
    if sequence.action_mask[0]:
        raise LearnerError(
            "the first token of a sequence is marked as sampled, without a prompt before it"
        )
    if not all(0 <= token < vocab_size for token in sequence.token_ids):
        raise LearnerError(f"a token id is outside the model's vocabulary of {vocab_size}")
    if sequence.temperature != 1.0:
        raise LearnerError(f"a sequence was drawn at temperature {sequence.temperature:g}, not 1")
    invalid = not all(math.isfinite(value) and value <= 1e-3 for value in sequence.logprobs)
    if invalid or not math.isfinite(sequence.advantage * weight):
        raise LearnerError("a log-prob is positive, NaN or infinite, or an advantage is no number")


def _tensor(values: np.ndarray) -> types.TensorData:
    return types.TensorData.from_numpy(values)
