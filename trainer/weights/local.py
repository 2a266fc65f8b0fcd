"""Weight sync between learner and engine of one process, without a copy in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch

from trainer.weights.base import Published
from trainer.weights.digests import WeightDigests, assert_same_weights, tensor_digests


class Publishes(Protocol):
    """A learner of this process."""

    def publish(self) -> Published:
        """Return the current weights and their version."""
        ...


@runtime_checkable
class UpdatesWeights(Protocol):
    """An engine of this process that copies weights out of the learner's tensors."""

    async def update(self, weights: Mapping[str, torch.Tensor], version: int) -> WeightDigests:
        """Load new weights; waits until no request is running, drops every cache.

        Returns the digests of the weights it has now.
        """
        ...


class InlineSync:
    """A `WeightSync` without transport."""

    def __init__(self, learner: Publishes, engine: UpdatesWeights) -> None:
        self._learner = learner
        self._engine = engine

    async def sync(self) -> None:
        """Pass the learner's tensors to the engine; see `WeightSync.sync`."""
        published = self._learner.publish()
        digests = await self._engine.update(published.weights, published.version)
        assert_same_weights(
            WeightDigests(published.version, tensor_digests(published.weights.items())), [digests]
        )
