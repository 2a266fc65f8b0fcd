"""Sequences into micro-batches without padding: one packed stream of tokens, prompts once.

Rollouts of one prompt form a family: the prompt is computed once and every branch (what a rollout
added) attends to it. With 8 rollouts per prompt that halved the
learner's time (`benchmarks/learner_step.py`).
Legend: N packed tokens, A action tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from trainer.algo.batch import TrainingSequence
from trainer.algo.loss import Actions


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


def micro_batches(
    sequences: Sequence[TrainingSequence],
    weights: Sequence[float],
    *,
    max_tokens: int,
    device: torch.device,
) -> list[MicroBatch]:
    """Pack a mini-batch into streams of at most `max_tokens` tokens (one family may be longer).

    Families of similar length share a stream. `weights` holds the loss weight of the action
    tokens of each sequence.
    """
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for index, sequence in enumerate(sequences):
        prompt = sequence.token_ids[: sequence.prompt_length]
        by_prompt.setdefault(prompt, []).append(index)
    families = [
        part for members in by_prompt.values() for part in _split(members, sequences, max_tokens)
    ]
    families.sort(key=lambda members: _size(members, sequences))
    packs: list[list[list[int]]] = []
    used = max_tokens
    for members in families:
        size = _size(members, sequences)
        if used + size > max_tokens:
            packs.append([])
            used = 0
        packs[-1].append(members)
        used += size
    return [_pack(pack, sequences, weights, device) for pack in packs]


def _size(members: Sequence[int], sequences: Sequence[TrainingSequence]) -> int:
    prompt_length = sequences[members[0]].prompt_length
    return prompt_length + sum(
        len(sequences[member].token_ids) - 1 - prompt_length for member in members
    )


def _split(
    members: Sequence[int], sequences: Sequence[TrainingSequence], max_tokens: int
) -> Iterable[list[int]]:
    """Cut a family that does not fit into parts that do, each with the prompt again."""
    part: list[int] = []
    for member in sorted(members, key=lambda index: len(sequences[index].token_ids)):
        if part and _size([*part, member], sequences) > max_tokens:
            yield part
            part = []
        part.append(member)
    yield part


def _pack(
    pack: Sequence[Sequence[int]],
    sequences: Sequence[TrainingSequence],
    weights: Sequence[float],
    device: torch.device,
) -> MicroBatch:
    token_ids: list[int] = []
    positions: list[int] = []
    families: list[Family] = []
    rows: list[tuple[int, int, float, float, float, float]] = []
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
                        )
                    )
            # The last token predicts nothing that is trained on, so it is not computed.
            branch = sequence.token_ids[prompt_length:-1]
            token_ids += branch
            positions += range(prompt_length, prompt_length + len(branch))
            lengths.append(len(branch))
        families.append(Family(prompt_length=prompt_length, branch_lengths=tuple(lengths)))
    sources, targets, temperatures, behaviour, advantages, shares = zip(*rows, strict=True)
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
        ),
    )
