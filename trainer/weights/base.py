"""The port between learner and engines: how new weights get from one to the other."""

from __future__ import annotations

from typing import Protocol


class WeightSync(Protocol):
    """Moves the learner's current weights into every engine.

    A way of transport is an implementation: which processes hold the two sides, and what the
    tensors travel through, is known to it alone. Tied heads are always sent under their own name.
    Both sides say what they have, tensor for tensor (`trainer.weights.manifest`), and the canary
    (`trainer.engines.canary`) is asked afterwards, whichever way was taken.
    """

    async def sync(self) -> None:
        """Return when every engine draws from the learner's current weights, and says so.

        Raises:
            WeightSyncMismatch: the two sides do not hold the same tensors.
            EngineError: an engine did not take them.
        """
        ...
