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

from trainer.algo.loss.action_tokens import ActionColumns, ActionTokens
from trainer.algo.sequences import TrainingSequence
from trainer.algo.streams import Streams
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
    host_sources: tuple[int, ...] = ()
    """`sources_A` in the host's memory, by which the actions are divided among ranks that share the
    stream: no wait for the device."""
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
    streams: Sequence[Streams],
    *,
    max_tokens: int,
    ranks: tuple[int, int] = (0, 1),
    device: torch.device,
    pair_cost: float = 0.0,
    filler_tokens: int = 1,
) -> list[MicroBatch]:
    """Pack the share of one rank; `ranks` is (rank, number of ranks), `pair_cost` as `partition`.

    `streams` holds, per sequence of the mini-batch, what the loss reads of it (`Objective`). Every
    rank gets the same number of micro-batches, with empty ones of `filler_tokens` at the end if it
    has less work.
    """
    rank, num_ranks = ranks
    shares = partition(sequences, num_ranks=num_ranks, max_tokens=max_tokens, pair_cost=pair_cost)
    packed = [
        _Stream().packed(
            [[(sequences[index], streams[index]) for index in group] for group in pack], device
        )
        for pack in shares[rank]
    ]
    missing = max(map(len, shares)) - len(packed)
    return (
        packed + [pack_single((0,) * (filler_tokens + 1), device=device, is_empty=True)] * missing
    )


def pack_single(
    token_ids: Sequence[int], *, device: torch.device, is_empty: bool = False
) -> MicroBatch:
    """Pack one sequence of at least two tokens; every token but the first is scored at T=1."""
    ids = torch.tensor(token_ids, device=device)
    length = len(token_ids) - 1
    return MicroBatch(
        token_ids_N=ids[:-1],
        positions_N=torch.arange(length, device=device),
        prefix_groups=(PrefixGroup(prompt_length=length, branch_lengths=()),),
        sources_A=torch.arange(length, device=device),
        host_sources=tuple(range(length)),
        targets_A=ids[1:],
        temperatures_A=torch.ones(length, device=device),
        actions=ActionTokens.zeros(length, device),
        is_empty=is_empty,
    )


@dataclass(slots=True)
class _Actions:
    """Columns of the action tokens, all of length A, by which they are scored; see `MicroBatch`."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)


class _Stream:
    """Builds the packed stream of one micro-batch, prefix group by prefix group."""

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._positions: list[int] = []
        self._prefix_groups: list[PrefixGroup] = []
        self._actions = _Actions()
        self._columns = ActionColumns()
        self._sequences: list[TrainingSequence] = []
        self._routes: list[Routes | None] = []

    def packed(
        self, groups: Sequence[Sequence[tuple[TrainingSequence, Streams]]], device: torch.device
    ) -> MicroBatch:
        """Return the micro-batch of `groups`: per prompt its sequences with their streams."""
        for group in groups:
            self._add_group(group)
        actions = self._actions

        def tensor(values: Sequence[float]) -> torch.Tensor:
            # int64 or float32, by the type of the values.
            return torch.tensor(values, device=device)

        return MicroBatch(
            token_ids_N=tensor(self._token_ids),
            positions_N=tensor(self._positions),
            prefix_groups=tuple(self._prefix_groups),
            sources_A=tensor(actions.sources),
            host_sources=tuple(actions.sources),
            targets_A=tensor(actions.targets),
            temperatures_A=tensor(actions.temperatures),
            actions=self._columns.packed(device),
            sequences=tuple(self._sequences),
            routes_NLK=self._packed_routes(device),
        )

    def _packed_routes(self, device: torch.device) -> torch.Tensor | None:
        """Return the experts of the stream; None unless all its sequences know theirs."""
        known = [each for each in self._routes if each is not None]
        if len(known) < len(self._routes):
            return None
        return torch.from_numpy(np.concatenate(known).astype(np.int32)).to(device)

    def _add_group(self, group: Sequence[tuple[TrainingSequence, Streams]]) -> None:
        """Append a prompt once and then the branch of each of its sequences."""
        first, _ = group[0]
        prompt_start, prompt_length = len(self._token_ids), first.prompt_length
        self._token_ids += first.token_ids[:prompt_length]
        self._positions += range(prompt_length)
        self._routes.append(None if first.routes is None else first.routes[:prompt_length])
        lengths = [
            self._add_branch(sequence, streams, prompt_start=prompt_start)
            for sequence, streams in group
        ]
        self._prefix_groups.append(
            PrefixGroup(prompt_length=prompt_length, branch_lengths=tuple(lengths))
        )

    def _add_branch(
        self, sequence: TrainingSequence, streams: Streams, *, prompt_start: int
    ) -> int:
        """Append a sequence's branch and its actions; return the branch's length in the stream."""
        actions, mask, prompt_length = self._actions, sequence.action_mask, sequence.prompt_length
        branch_start = len(self._token_ids)
        # `sources` are indices in the stream of the hidden states that predict the actions. Within
        # a branch that is the token before. The branch's first token is predicted by the prompt's
        # last one, which precedes it in the stream for the first branch only.
        prompt_end = prompt_start + prompt_length - 1
        places = [at for at in range(prompt_length, len(mask)) if mask[at]]
        actions.sources += [
            branch_start + at - prompt_length - 1 if at > prompt_length else prompt_end
            for at in places
        ]
        actions.targets += [sequence.token_ids[at] for at in places]
        actions.temperatures += [sequence.temperature] * len(places)
        self._columns.add(streams, places)
        # The last token is a target but predicts nothing, so the stream does not contain it.
        branch = sequence.token_ids[prompt_length:-1]
        self._token_ids += branch
        self._positions += range(prompt_length, prompt_length + len(branch))
        self._sequences.append(sequence)
        routes, end = sequence.routes, len(sequence.token_ids) - 1
        self._routes.append(None if routes is None else routes[prompt_length:end])
        return len(branch)
