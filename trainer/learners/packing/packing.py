"""Packs sequences into micro-batches without padding; a prompt is computed once per prefix group.

The rollouts of one prompt form a prefix group: the prompt is stored once in the packed stream, and
every branch (the tokens that one rollout added) attends to it. With 8 rollouts per prompt that
halved the learner's time (`benchmarks/learner_step.py`).

    stream N:  prompt of group 0 | branch 0 | branch 1 | ... | prompt of group 1 | branch 0 | ...

Legend: N packed tokens, A action tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from trainer.algo.loss.action_tokens import ActionTokens
from trainer.algo.sequences import TrainingSequence
from trainer.learners.packing.partition import partition
from trainer.types import Routes


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixGroup:
    """Layout of one prompt in the stream: the prompt's tokens, then those of each branch."""

    prompt_length: int
    branch_lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Packed tokens of the prompt and all its branches."""
        return self.prompt_length + sum(self.branch_lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One forward and backward pass."""

    token_ids_N: torch.Tensor
    positions_N: torch.Tensor
    """Position of each token in its own sequence, for the rotary embedding: every branch continues
    at the end of the prompt, wherever the branch is in the stream."""
    prefix_groups: tuple[PrefixGroup, ...]
    sources_A: torch.Tensor
    """Index in the stream of the token *before* each action: its hidden state predicts it."""
    targets_A: torch.Tensor
    temperatures_A: torch.Tensor
    actions: ActionTokens
    sequences: tuple[TrainingSequence, ...] = ()
    """Those that `actions.sequences_A` numbers, in this order; their actions follow each other."""
    is_empty: bool = False
    """True for a filler of a rank with fewer micro-batches than others: it takes part in the
    collectives, without which FSDP would hang, and contributes no gradient."""
    routes_NLK: torch.Tensor | None = None
    """int32: experts that compute each token in each layer of the model; None: the router
    chooses."""


def micro_batches(  # noqa: PLR0913 - what is packed, into what, for whom
    sequences: Sequence[TrainingSequence],
    weights: Sequence[float],
    *,
    max_tokens: int,
    version: int = 0,
    ranks: tuple[int, int] = (0, 1),
    device: torch.device,
    pair_cost: float = 0.0,
) -> list[MicroBatch]:
    """Pack the share of one rank; `ranks` is (rank, number of ranks), `pair_cost` as `partition`.

    `weights` holds, per sequence of the mini-batch, the loss weight of each of its action tokens;
    `version` is that of the policy that the step begins with. Every rank gets the same number of
    micro-batches, with empty ones at the end if it has less work.
    """
    rank, num_ranks = ranks
    shares = partition(sequences, num_ranks=num_ranks, max_tokens=max_tokens, pair_cost=pair_cost)
    packed = [
        _Stream(version).packed(
            [[(sequences[index], weights[index]) for index in group] for group in pack], device
        )
        for pack in shares[rank]
    ]
    missing = max(map(len, shares)) - len(packed)
    return packed + [pack_single((0, 0), device=device, is_empty=True)] * missing


def pack_single(
    token_ids: Sequence[int], *, device: torch.device, is_empty: bool = False
) -> MicroBatch:
    """Pack one sequence of at least two tokens; every token but the first is scored at T=1."""
    ids = torch.tensor(token_ids, device=device)
    length = len(token_ids) - 1
    zeros = torch.zeros(length, device=device)
    return MicroBatch(
        token_ids_N=ids[:-1],
        positions_N=torch.arange(length, device=device),
        prefix_groups=(PrefixGroup(prompt_length=length, branch_lengths=()),),
        sources_A=torch.arange(length, device=device),
        targets_A=ids[1:],
        temperatures_A=torch.ones(length, device=device),
        actions=ActionTokens(
            behaviour_logprobs_A=zeros,
            advantages_A=zeros,
            weights_A=zeros,
            sequences_A=torch.zeros(length, dtype=torch.int64, device=device),
        ),
        is_empty=is_empty,
    )


@dataclass(slots=True)
class _Actions:
    """Columns of the action tokens, all of length A; see `MicroBatch` and `ActionTokens`."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    behaviour_logprobs: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    is_current: list[bool] = field(default_factory=list)


class _Stream:
    """Builds the packed stream of one micro-batch, prefix group by prefix group."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._token_ids: list[int] = []
        self._positions: list[int] = []
        self._prefix_groups: list[PrefixGroup] = []
        self._actions = _Actions()
        self._sequences: list[TrainingSequence] = []
        self._routes: list[Routes | None] = []

    def packed(
        self, groups: Sequence[Sequence[tuple[TrainingSequence, float]]], device: torch.device
    ) -> MicroBatch:
        """Return the micro-batch of `groups`: per prompt its sequences with their loss weights."""
        for group in groups:
            self._add_group(group)
        actions = self._actions

        def tensor(values: Sequence[float]) -> torch.Tensor:
            # int64, float32 or bool, by the type of the values.
            return torch.tensor(values, device=device)

        return MicroBatch(
            token_ids_N=tensor(self._token_ids),
            positions_N=tensor(self._positions),
            prefix_groups=tuple(self._prefix_groups),
            sources_A=tensor(actions.sources),
            targets_A=tensor(actions.targets),
            temperatures_A=tensor(actions.temperatures),
            actions=ActionTokens(
                behaviour_logprobs_A=tensor(actions.behaviour_logprobs),
                advantages_A=tensor(actions.advantages),
                weights_A=tensor(actions.weights),
                sequences_A=tensor(actions.sequences),
                is_current_A=tensor(actions.is_current),
            ),
            sequences=tuple(self._sequences),
            routes_NLK=self._packed_routes(device),
        )

    def _packed_routes(self, device: torch.device) -> torch.Tensor | None:
        """Return the experts of the stream; None unless all its sequences know theirs."""
        known = [each for each in self._routes if each is not None]
        if len(known) < len(self._routes):
            return None
        return torch.from_numpy(np.concatenate(known).astype(np.int32)).to(device)

    def _add_group(self, group: Sequence[tuple[TrainingSequence, float]]) -> None:
        """Append a prompt once and then the branch of each of its sequences."""
        first, _ = group[0]
        prompt_start, prompt_length = len(self._token_ids), first.prompt_length
        self._token_ids += first.token_ids[:prompt_length]
        self._positions += range(prompt_length)
        self._routes.append(None if first.routes is None else first.routes[:prompt_length])
        lengths = [
            self._add_branch(sequence, weight, prompt_start=prompt_start)
            for sequence, weight in group
        ]
        self._prefix_groups.append(
            PrefixGroup(prompt_length=prompt_length, branch_lengths=tuple(lengths))
        )

    def _add_branch(self, sequence: TrainingSequence, weight: float, *, prompt_start: int) -> int:
        """Append a sequence's branch and its actions; return the branch's length in the stream."""
        actions, prompt_length = self._actions, sequence.prompt_length
        branch_start = len(self._token_ids)
        # `sources` are indices in the stream of the hidden states that predict the actions. Within
        # a branch that is the token before. The branch's first token is predicted by the prompt's
        # last one, which precedes it in the stream for the first branch only.
        prompt_end = prompt_start + prompt_length - 1
        for offset, at in enumerate(range(prompt_length, len(sequence.token_ids))):
            if sequence.action_mask[at]:
                actions.sources.append(branch_start + offset - 1 if offset else prompt_end)
                actions.targets.append(sequence.token_ids[at])
                actions.temperatures.append(sequence.temperature)
                actions.behaviour_logprobs.append(sequence.logprobs[at])
                actions.advantages.append(sequence.advantage)
                actions.weights.append(weight)
                actions.sequences.append(len(self._sequences))
                actions.is_current.append(sequence.is_current(at, self._version))
        # The last token is a target but predicts nothing, so the stream does not contain it.
        branch = sequence.token_ids[prompt_length:-1]
        self._token_ids += branch
        self._positions += range(prompt_length, prompt_length + len(branch))
        self._sequences.append(sequence)
        routes, end = sequence.routes, len(sequence.token_ids) - 1
        self._routes.append(None if routes is None else routes[prompt_length:end])
        return len(branch)
