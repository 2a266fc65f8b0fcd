"""Order in which the tokens of a packed stream pass through a layer of linear attention.

A *run* is a stretch of the stream that is computed from one state on: a prompt, or a branch; a
prompt with a single branch is one run.
Legend: N tokens of the stream, M of the runs of one pass, R runs, W width of the convolution, J
first tokens of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from trainer.inputs.model.families.delta_rule import CHUNK
from trainer.learners.packing.packing import PrefixGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Runs of similar length, padded to the longest: `first` ... `first + num - 1`."""

    first: int
    num: int
    longest: int
    tokens: slice
    """Theirs among the M tokens."""
    places: torch.Tensor | None
    """Index of each token in [num * longest]; None where nothing is padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs that are computed in one pass, the longest first."""

    tokens_M: torch.Tensor
    """Index of each token in the stream, run after run."""
    offsets: torch.Tensor
    """Where each run begins among the tokens, and where the last one ends: [R + 1]."""
    origins_R: torch.Tensor | None
    """Of branches: the run of the prompts whose last state each begins with."""
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayout:
    """Order in which the tokens of a packed stream are computed; the same in every layer."""

    prompts: Runs
    branches: Runs | None
    order_N: torch.Tensor
    """Index of each token of the stream among those of prompts and branches, in this order."""
    heads_J: torch.Tensor
    """The first W - 1 tokens of each run, whose convolution looks beyond the run's beginning."""
    taps_JW: torch.Tensor
    """Index of the W tokens that each of them sees; N stands for none."""

    @classmethod
    def of(cls, groups: Sequence[PrefixGroup], width: int, device: torch.device) -> RecurrentLayout:
        """Lay out the stream of `groups` for convolutions over `width` tokens."""
        prompts: list[range] = []
        branches: list[tuple[range, int]] = []
        start = 0
        for group in groups:
            stop = start + group.num_tokens
            ends = [*accumulate(group.branch_lengths, initial=start + group.prompt_length)]
            if len(group.branch_lengths) == 1:
                ends = [stop]
            branches += [(range(a, b), len(prompts)) for a, b in pairwise(ends) if b > a]
            prompts.append(range(start, ends[0]))
            start = stop
        before = [range(each.start, each.start) for each in prompts]
        before += [prompts[prompt] for _, prompt in branches]
        heads, taps = _taps([*prompts, *(run for run, _ in branches)], before, width, start)
        # Longest first; a stable order, so that a run's place is known from its length.
        ranked = sorted(range(len(prompts)), key=lambda each: -len(prompts[each]))
        places = {prompt: place for place, prompt in enumerate(ranked)}
        branches.sort(key=lambda each: -len(each[0]))
        first = _runs([prompts[each] for each in ranked], None, device)
        second = None
        if branches:
            origins = torch.tensor([places[prompt] for _, prompt in branches], device=device)
            second = _runs([run for run, _ in branches], origins, device)
        computed = [first.tokens_M] + ([second.tokens_M] if second is not None else [])
        return cls(
            prompts=first,
            branches=second,
            order_N=torch.cat(computed).argsort(),
            heads_J=torch.tensor(heads, device=device),
            taps_JW=torch.tensor(taps, device=device),
        )


def _taps(
    runs: Sequence[range], before: Sequence[range], width: int, none: int
) -> tuple[list[int], list[list[int]]]:
    """Return the first tokens of each run, and the `width` tokens that end with each of them."""
    heads: list[int] = []
    taps: list[list[int]] = []
    for run, earlier in zip(runs, before, strict=True):
        seen = [none] * width + [*earlier[-width:]]
        for token in run[: width - 1]:
            seen.append(token)
            heads.append(token)
            taps.append(seen[-width:])
    return heads, taps


def _runs(runs: Sequence[range], origins: torch.Tensor | None, device: torch.device) -> Runs:
    """Lay out runs that are sorted by length, the longest first."""
    ends = [*accumulate((len(run) for run in runs), initial=0)]
    buckets: list[Bucket] = []
    first = 0
    while first < len(runs):
        longest = len(runs[first])
        # Padding at most doubles what is computed, and chunks are computed whole anyway.
        last = first
        while last < len(runs) and 2 * max(len(runs[last]), CHUNK) >= longest:
            last += 1
        places = None
        if len(runs[last - 1]) < longest:
            places = torch.cat(
                [torch.arange(len(run)) + row * longest for row, run in enumerate(runs[first:last])]
            ).to(device)
        buckets.append(
            Bucket(
                first=first,
                num=last - first,
                longest=longest,
                tokens=slice(ends[first], ends[last]),
                places=places,
            )
        )
        first = last
    return Runs(
        tokens_M=torch.cat([torch.arange(run.start, run.stop) for run in runs]).to(device),
        offsets=torch.tensor(ends, device=device),
        origins_R=origins,
        buckets=tuple(buckets),
    )
