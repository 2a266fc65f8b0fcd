"""Partition of a mini-batch: assigns sequences to forward passes, and those to ranks.

Pure arithmetic over lengths. Every rank computes the same result, so nothing is communicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from trainer.algo.sequences import TrainingSequence

Members: TypeAlias = list[int]
"""Indices of sequences with one prompt, computed together: a prefix group or a part of it."""
Pack: TypeAlias = list[Members]
"""Prefix groups of one forward pass."""


def partition(
    sequences: Sequence[TrainingSequence],
    *,
    num_ranks: int,
    max_tokens: int,
    pair_cost: float = 0.0,
) -> list[list[Pack]]:
    """Return the packs of each rank, balanced by cost; ranks may differ in their number of packs.

    `pair_cost` is that of a pair of tokens of which one attends to the other, in costs of a token.
    A pack has at most `max_tokens` tokens, unless one sequence alone has more. Prefix groups stay
    whole as far as that and the balance allow; sequences always do.
    """
    by_prompt: dict[tuple[int, ...], Members] = {}
    for index, sequence in enumerate(sequences):
        prompt = sequence.token_ids[: sequence.prompt_length]
        by_prompt.setdefault(prompt, []).append(index)
    # With several ranks no part exceeds a rank's fair share. Otherwise one large group could leave
    # ranks idle; the price is that a split group's prompt is computed more than once.
    total = sum(_size(members, sequences) for members in by_prompt.values())
    limit = max_tokens if num_ranks == 1 else min(max_tokens, -(-total // num_ranks))
    prefix_groups = [
        part for members in by_prompt.values() for part in _split(members, sequences, limit)
    ]
    prefix_groups.sort(key=lambda members: _size(members, sequences))
    costs = [_size(each, sequences) + pair_cost * _pairs(each, sequences) for each in prefix_groups]
    return [
        _packs(share, sequences, max_tokens) for share in _deal(prefix_groups, costs, num_ranks)
    ]


def _size(members: Sequence[int], sequences: Sequence[TrainingSequence]) -> int:
    """Return the packed tokens: the prompt once, then all but the last token of each branch."""
    prompt_length = sequences[members[0]].prompt_length
    return prompt_length + sum(
        len(sequences[member].token_ids) - 1 - prompt_length for member in members
    )


def _pairs(members: Sequence[int], sequences: Sequence[TrainingSequence]) -> float:
    """Return the pairs of tokens that attention computes: causal, siblings apart."""
    prompt = sequences[members[0]].prompt_length
    branches = [len(sequences[member].token_ids) - 1 - prompt for member in members]
    return prompt * (prompt + 1) / 2 + sum(n * prompt + n * (n + 1) / 2 for n in branches)


def _split(
    members: Members, sequences: Sequence[TrainingSequence], max_tokens: int
) -> Iterable[Members]:
    """Split a prefix group that does not fit into parts that do, each with the prompt again."""
    part: Members = []
    for member in sorted(members, key=lambda index: len(sequences[index].token_ids)):
        if part and _size([*part, member], sequences) > max_tokens:
            yield part
            part = []
        part.append(member)
    yield part


def _deal(
    prefix_groups: Sequence[Members], costs: Sequence[float], num_ranks: int
) -> list[list[Members]]:
    """Assign each group, the costliest first, to the rank with the least cost.

    The groups are sorted by size, and so are each rank's. Greedy longest-processing-time scheduling
    (Graham 1969).
    """
    shares: list[list[int]] = [[] for _ in range(num_ranks)]
    loads = [0.0] * num_ranks
    for index in sorted(range(len(costs)), key=lambda each: costs[each])[::-1]:
        rank = loads.index(min(loads))
        shares[rank].append(index)
        loads[rank] += costs[index]
    return [[prefix_groups[index] for index in sorted(share)] for share in shares]


def _packs(
    prefix_groups: Sequence[Members], sequences: Sequence[TrainingSequence], max_tokens: int
) -> list[Pack]:
    """Fill packs in order of size, so that groups of similar length share one."""
    packs: list[Pack] = []
    used = max_tokens
    for members in prefix_groups:
        size = _size(members, sequences)
        if used + size > max_tokens:
            packs.append([])
            used = 0
        packs[-1].append(members)
        used += size
    return packs
