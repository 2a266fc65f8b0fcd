"""Learner and engine in one process: the tensors are handed over as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch

from trainer.learners.base import Published
from trainer.weights.manifest import Manifest, demand_same, marks


class Publishes(Protocol):
    """A learner of this process."""

    def publish(self) -> Published:
        """Return the current weights and their version."""
        ...


@runtime_checkable
class TakesWeights(Protocol):
    """An engine of this process that copies what it is given."""

    async def update(self, weights: Mapping[str, torch.Tensor], version: int) -> Manifest:
        """Take new weights; waits until no request is running, drops every cache.

        Returns what it has now.
        """
        ...


class InlineSync:
    """A `WeightSync` without transport."""

    def __init__(self, learner: Publishes, engine: TakesWeights) -> None:
        self._learner = learner
        self._engine = engine

    async def sync(self) -> None:
        """Give the engine the learner's tensors; see `WeightSync.sync`."""
        published = self._learner.publish()
        held = await self._engine.update(published.weights, published.version)
        demand_same(Manifest(published.version, marks(published.weights.items())), [held])
