"""The weight-sync port: transfers new weights from the learner to the engines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from trainer.errors import EngineError

SYNC_LIMIT_S = 900.0
"""Time limit of a sync (seconds): the largest models take minutes through a file, and the deadline
of a step may be hours."""


class WeightSync(Protocol):
    """Moves the learner's current weights into every engine.

    Each transport is an implementation: it alone knows the processes of both sides and the medium
    in between. Tied heads are always sent under their own name. Both sides report digests of every
    tensor (`trainer.weights.digests`), and the canary (`trainer.engines.canary`) runs afterwards,
    whatever the transport.
    """

    async def sync(self) -> None:
        """Return once every engine samples from the learner's current weights, digests compared.

        Raises:
            WeightSyncMismatch: the two sides do not hold the same tensors.
            EngineError: an engine did not load them.
        """
        ...


class TimedSync:
    """A weight sync that ends with an error when a side hangs: the others wait for it."""

    def __init__(self, sync: WeightSync, limit_s: float = SYNC_LIMIT_S) -> None:
        self.inner, self._limit_s = sync, limit_s

    async def sync(self) -> None:
        """See `WeightSync.sync`.

        Raises:
            WeightSyncMismatch: as `WeightSync.sync`.
            EngineError: as `WeightSync.sync`, or the time is over.
        """
        try:
            async with asyncio.timeout(self._limit_s):
                await self.inner.sync()
        except TimeoutError:
            raise EngineError(
                f"the weights were not in every engine after {self._limit_s:g} s: the learner or an"
                " engine hangs"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Weights for the engines, with the version they are known by."""

    weights: Mapping[str, torch.Tensor]
    """By Hugging Face name, the tied `lm_head.weight` always included; detached, read-only: they
    are valid until the next `step` or `load`."""
    version: int
