"""Sequences into micro-batches without padding: one packed stream of tokens, prompts once.

Rollouts of one prompt form a family: the prompt is computed once and every branch (what a rollout
added) attends to it. With 8 rollouts per prompt that halved the
learner's time (`benchmarks/learner_step.py`).
Legend: N packed tokens, A action tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainer.algo.actions import Actions
from trainer.algo.sequences import TrainingSequence
from trainer.learners.partition import Pack, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Where a prompt and its branches lie in the stream: the prompt first, then each branch."""

    prompt_length: int
    branch_lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Packed tokens of the family."""
        return self.prompt_length + sum(self.branch_lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One forward and backward pass."""

    token_ids_N: torch.Tensor
    positions_N: torch.Tensor
    families: tuple[Family, ...]
    sources_A: torch.Tensor
    """Index in the stream of the token *before* each action: its hidden state predicts it."""
    targets_A: torch.Tensor
    temperatures_A: torch.Tensor
    actions: Actions
    is_empty: bool = False
    """True where this rank only takes part in the others' communication: nothing is learned."""


def micro_batches(
    sequences: Sequence[TrainingSequence],
    weights: Sequence[float],
    *,
    max_tokens: int,
    version: int = 0,
    ranks: tuple[int, int] = (0, 1),
    device: torch.device,
) -> list[MicroBatch]:
    """The micro-batches of one rank, as many for each; `ranks` says which of how many it is.

    `weights` holds the loss weight of the action tokens of each sequence, of the whole mini-batch;
    `version` is that of the policy that the step begins with.
    A rank that has less to do than another gets empty micro-batches at the end.
    """
    rank, num_ranks = ranks
    shares = partition(sequences, num_ranks=num_ranks, max_tokens=max_tokens)
    packed = [_pack(pack, sequences, weights, version, device) for pack in shares[rank]]
    missing = max(map(len, shares)) - len(packed)
    return packed + [plain((0, 0), device=device, is_empty=True)] * missing


def plain(token_ids: Sequence[int], *, device: torch.device, is_empty: bool = False) -> MicroBatch:
    """One sequence of at least two tokens, every token but the first to be scored at T=1."""
    ids = torch.tensor(token_ids, device=device)
    length = len(token_ids) - 1
    zeros = torch.zeros(length, device=device)
    return MicroBatch(
        token_ids_N=ids[:-1],
        positions_N=torch.arange(length, device=device),
        families=(Family(prompt_length=length, branch_lengths=()),),
        sources_A=torch.arange(length, device=device),
        targets_A=ids[1:],
        temperatures_A=torch.ones(length, device=device),
        actions=Actions(
            behaviour_logprobs_A=zeros,
            advantages_A=zeros,
            weights_A=zeros,
            sequences_A=torch.zeros(length, dtype=torch.int64, device=device),
        ),
        is_empty=is_empty,
    )


def _pack(
    pack: Pack,
    sequences: Sequence[TrainingSequence],
    weights: Sequence[float],
    version: int,
    device: torch.device,
) -> MicroBatch:
    token_ids: list[int] = []
    positions: list[int] = []
    families: list[Family] = []
    rows: list[tuple[int, int, float, float, float, float, int, bool]] = []
    num_sequences = 0
    for members in pack:
        first = sequences[members[0]]
        prompt_start, prompt_length = len(token_ids), first.prompt_length
        token_ids += first.token_ids[:prompt_length]
        positions += range(prompt_length)
        lengths = []
        for member in members:
            sequence = sequences[member]
            shift = len(token_ids) - prompt_length
            for at in range(prompt_length, len(sequence.token_ids)):
                if sequence.action_mask[at]:
                    source = shift + at - 1 if at > prompt_length else prompt_start + at - 1
                    rows.append(
                        (
                            source,
                            sequence.token_ids[at],
                            sequence.temperature,
                            sequence.logprobs[at],
                            sequence.advantage,
                            weights[member],
                            num_sequences,
                            sequence.is_current(at, version),
                        )
                    )
            # The last token predicts nothing that is trained on, so it is not computed.
            branch = sequence.token_ids[prompt_length:-1]
            token_ids += branch
            positions += range(prompt_length, prompt_length + len(branch))
            lengths.append(len(branch))
            num_sequences += 1
        families.append(Family(prompt_length=prompt_length, branch_lengths=tuple(lengths)))
    columns = zip(*rows, strict=True)
    sources, targets, temperatures, behaviour, advantages, shares, owners, current = columns
    return MicroBatch(
        token_ids_N=torch.tensor(token_ids, device=device),
        positions_N=torch.tensor(positions, device=device),
        families=tuple(families),
        sources_A=torch.tensor(sources, device=device),
        targets_A=torch.tensor(targets, device=device),
        temperatures_A=torch.tensor(temperatures, device=device),
        actions=Actions(
            behaviour_logprobs_A=torch.tensor(behaviour, device=device),
            advantages_A=torch.tensor(advantages, device=device),
            weights_A=torch.tensor(shares, device=device),
            sequences_A=torch.tensor(owners, device=device),
            is_current_A=torch.tensor(current, device=device),
        ),
    )
