"""The ranks that share the tokens of one packed stream, and what each of them computes.

Every rank of a context group packs the same micro-batch. It runs the layers over its own part of
the tokens and the head over the actions that these predict; then all of them have all log-probs,
and compute the same loss over whole sequences. Gradients flow into a rank's own log-probs alone, so
that their sum over all ranks counts every token once.
Legend: N tokens of the stream, A its action tokens, a those of one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from trainer.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextGroup:
    """This rank's place among the ranks that share a stream; there are at least two."""

    rank: int
    size: int
    processes: dist.ProcessGroup

    def lengths(self, num_tokens: int) -> list[int]:
        """Return the number of tokens of each rank: equal, or one more for the first ones."""
        each, rest = divmod(num_tokens, self.size)
        return [each + (rank < rest) for rank in range(self.size)]

    def part(self, num_tokens: int) -> slice:
        """Return the place in the stream of this rank's tokens."""
        lengths = self.lengths(num_tokens)
        start = sum(lengths[: self.rank])
        return slice(start, start + lengths[self.rank])


def context_group(device: torch.device, num_ranks: int, size: int) -> ContextGroup | None:
    """Divide the world into groups of `size` consecutive ranks; None if each is alone.

    Called on all ranks alike. Consecutive ranks are on one node, whose GPUs talk fastest.

    Raises:
        SpecError: a group would not be whole.
    """
    if num_ranks % size:
        raise SpecError(
            f"learner.context_parallel_size is {size}, and placement.learner_ranks {num_ranks} is"
            " no multiple of it"
        )
    if size == 1:
        return None
    names = ("data", "context")
    mesh = init_device_mesh(device.type, (num_ranks // size, size), mesh_dim_names=names)
    return ContextGroup(
        rank=mesh.get_local_rank("context"), size=size, processes=mesh.get_group("context")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnActions:
    """The actions of a micro-batch that this rank scores: those that its tokens predict."""

    context: ContextGroup
    order_A: torch.Tensor
    """Actions by the rank that scores them, each rank's in the order of the micro-batch."""
    counts: list[int]
    """Actions of each rank."""
    first_token: int
    """Of this rank, in the stream."""

    @classmethod
    def of(
        cls, context: ContextGroup, sources: Sequence[int], num_tokens: int, device: torch.device
    ) -> OwnActions:
        """Divide the actions, whose predicting tokens are `sources` in a stream of N."""
        ends = np.cumsum(context.lengths(num_tokens))
        ranks = np.searchsorted(ends, np.asarray(sources, dtype=np.int64), side="right")
        counts: list[int] = np.bincount(ranks, minlength=context.size).tolist()
        return cls(
            context=context,
            order_A=torch.tensor(ranks.argsort(kind="stable"), device=device),
            counts=counts,
            first_token=context.part(num_tokens).start,
        )

    @property
    def rows_a(self) -> torch.Tensor:
        """Indices of this rank's actions in the micro-batch."""
        return self.order_A[self._own]

    def whole(self, values_a: torch.Tensor) -> torch.Tensor:
        """Gather every rank's values: [A] in the micro-batch's order, on all ranks of the group.

        The gradient reaches this rank's own values, and no other's: each rank computes the same
        loss, and has the others' gradients to leave to them.
        """
        gathered_A = values_a.new_empty(sum(self.counts))
        dist.all_to_all_single(
            gathered_A,
            values_a.detach().repeat(self.context.size),
            self.counts,
            [len(values_a)] * self.context.size,
            group=self.context.processes,
        )
        parts = list(torch.split(gathered_A, self.counts))
        parts[self.context.rank] = values_a
        return torch.cat(parts).index_select(0, self.order_A.argsort())

    @property
    def _own(self) -> slice:
        start = sum(self.counts[: self.context.rank])
        return slice(start, start + self.counts[self.context.rank])
