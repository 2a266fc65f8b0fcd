"""The weight-sync port: transfers new weights from the learner to the engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Weights for the engines, with the version they are known by."""

    weights: Mapping[str, torch.Tensor]
    """By Hugging Face name, the tied `lm_head.weight` always included; detached, read-only: they
    are valid until the next `step` or `load`."""
    version: int
