"""The tokens that enter the loss, and sums over the sequences they belong to.

Legend: _A the action tokens of a micro-batch, _S its sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch

from trainer.algo.streams import Stream, Streams, Values

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
    further: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Streams of a loss's own by name: [A, ...], or [S, ...] where they are of sequences."""

    @classmethod
    def zeros(cls, length: int, device: torch.device | None = None) -> ActionTokens:
        """Return tokens of one sequence of which nothing is known: only to be scored."""
        zeros_A = torch.zeros(length, device=device)
        return cls(
            behaviour_logprobs_A=zeros_A,
            advantages_A=zeros_A,
            weights_A=zeros_A,
            sequences_A=torch.zeros(length, dtype=torch.int64, device=device),
        )

    def with_columns(self, columns: Mapping[str, torch.Tensor]) -> ActionTokens:
        """Return the tokens with more or other values, by the names of their streams."""
        own = {f"{name}_A": values for name, values in columns.items() if f"{name}_A" in _COLUMNS}
        rest = {name: values for name, values in columns.items() if f"{name}_A" not in own}
        changes: dict[str, Any] = own | ({"further": {**self.further, **rest}} if rest else {})
        return replace(self, **changes)

    def gaps(self, logprobs_A: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """Return how far the learner's log-probs are from the behaviour's, and if it had updated.

        Log-probs of the policy that the step began with are taken where there are any: no update
        lies between those and the behaviour's. `logprobs_A` are those of the policy as it is now.
        """
        if self.proximal_logprobs_A is not None:
            return self.proximal_logprobs_A - self.behaviour_logprobs_A, False
        return logprobs_A - self.behaviour_logprobs_A, True

    @property
    def old_logprobs(self) -> torch.Tensor:
        """Denominator of the clipped ratio: the proximal log-probs, else the behaviour's."""
        if self.proximal_logprobs_A is None:
            return self.behaviour_logprobs_A
        return self.proximal_logprobs_A


_COLUMNS = frozenset(each.name for each in fields(ActionTokens))
BEHAVIOUR_LOGPROBS = Stream(name="behaviour_logprobs", alignment="action")
IS_CURRENT = Stream(name="is_current", alignment="action", dtype="bool")
ADVANTAGES = Stream(name="advantages", alignment="sequence")
WEIGHTS = Stream(name="weights", alignment="sequence")


class ActionColumns:
    """Collects the streams of sequences, one after the other, into those of a micro-batch."""

    def __init__(self) -> None:
        """Begin with no sequence."""
        self._parts: dict[Stream, list[Values]] = {}
        self._num_actions: list[int] = []

    def add(self, streams: Streams, places: Sequence[int]) -> None:
        """Append a sequence, of whose tokens those at `places` enter the loss.

        Raises:
            ValueError: it has other streams than those before it.
        """
        if self._num_actions and streams.keys() != self._parts.keys():
            raise ValueError("the sequences of a mini-batch have different streams")
        rows = np.asarray(places, dtype=np.int64)
        for stream, values in streams.items():
            part = values[rows] if stream.alignment == "action" else values[np.newaxis]
            self._parts.setdefault(stream, []).append(part)
        self._num_actions.append(len(places))

    def packed(self, device: torch.device) -> ActionTokens:
        """Return the action tokens of all sequences, of which there is at least one."""
        owners = np.repeat(np.arange(len(self._num_actions)), self._num_actions)
        sequences_A = torch.from_numpy(owners).to(device)
        columns = {}
        for stream, parts in self._parts.items():
            values = torch.from_numpy(np.concatenate(parts)).to(device)
            is_spread = stream.alignment == "sequence" and f"{stream.name}_A" in _COLUMNS
            columns[stream.name] = values.index_select(0, sequences_A) if is_spread else values
        return replace(
            ActionTokens.zeros(len(owners), device), sequences_A=sequences_A
        ).with_columns(columns)


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
