"""Which sequences share a forward pass, and which rank takes it.

Pure arithmetic over lengths that every rank does alike, so no rank has to be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from trainer.algo.sequences import TrainingSequence

Members: TypeAlias = list[int]
"""Indices of sequences with one prompt that are computed together: a family, or part of one."""
Pack: TypeAlias = list[Members]
"""Families of one forward pass."""


def partition(
    sequences: Sequence[TrainingSequence], *, num_ranks: int, max_tokens: int
) -> list[list[Pack]]:
    """The packs of each rank, balanced by tokens; ranks may differ in their number of packs.

    A pack has at most `max_tokens` tokens, unless one sequence alone has more. Families stay whole
    as far as that and the balance allow; sequences always do.
    """
    by_prompt: dict[tuple[int, ...], Members] = {}
    for index, sequence in enumerate(sequences):
        prompt = sequence.token_ids[: sequence.prompt_length]
        by_prompt.setdefault(prompt, []).append(index)
    whole = sum(_size(members, sequences) for members in by_prompt.values())
    limit = max_tokens if num_ranks == 1 else min(max_tokens, -(-whole // num_ranks))
    families = [
        part for members in by_prompt.values() for part in _split(members, sequences, limit)
    ]
    families.sort(key=lambda members: _size(members, sequences))
    return [_packs(share, sequences, max_tokens) for share in _deal(families, sequences, num_ranks)]


def _size(members: Sequence[int], sequences: Sequence[TrainingSequence]) -> int:
    prompt_length = sequences[members[0]].prompt_length
    return prompt_length + sum(
        len(sequences[member].token_ids) - 1 - prompt_length for member in members
    )


def _split(
    members: Members, sequences: Sequence[TrainingSequence], max_tokens: int
) -> Iterable[Members]:
    """Cut a family that does not fit into parts that do, each with the prompt again."""
    part: Members = []
    for member in sorted(members, key=lambda index: len(sequences[index].token_ids)):
        if part and _size([*part, member], sequences) > max_tokens:
            yield part
            part = []
        part.append(member)
    yield part


def _deal(
    families: Sequence[Members], sequences: Sequence[TrainingSequence], num_ranks: int
) -> list[list[Members]]:
    """Largest family first, each to the rank that has least; a rank's own come smallest first."""
    shares: list[list[Members]] = [[] for _ in range(num_ranks)]
    loads = [0] * num_ranks
    for members in reversed(families):
        rank = loads.index(min(loads))
        shares[rank].insert(0, members)
        loads[rank] += _size(members, sequences)
    return shares


def _packs(
    families: Sequence[Members], sequences: Sequence[TrainingSequence], max_tokens: int
) -> list[Pack]:
    """Families of similar length share a pack: `families` come in the order of their size."""
    packs: list[Pack] = []
    used = max_tokens
    for members in families:
        size = _size(members, sequences)
        if used + size > max_tokens:
            packs.append([])
            used = 0
        packs[-1].append(members)
        used += size
    return packs
