"""Weight sync on a Tinker server: the engine gets a client that samples the new weights."""

from __future__ import annotations

import tinker

from trainer.workers.tinker.engine import TinkerEngine
from trainer.workers.tinker.learner import TinkerLearner


class TinkerSync:
    """A `WeightSync` without a transfer."""

    def __init__(self, learner: TinkerLearner, engine: TinkerEngine) -> None:
        self._learner = learner
        self._engine = engine
        self._client: tinker.SamplingClient | None = None
        self._published: int | None = None

    async def sync(self) -> None:
        """Publish the weights, if they have changed, and let the engine sample from them."""
        num_updates = self._learner.num_updates
        if self._client is None or self._published != num_updates:
            self._client = await self._learner.sampling_client()
            self._published = num_updates
        self._engine.take(self._client, self._learner.version)
