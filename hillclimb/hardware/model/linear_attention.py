"""Rules for models with linear attention: what was never compared is refused."""

from __future__ import annotations

from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.run import RunSpec

NO_ADAPTERS = (
    "engine.weight_transport lora was never compared for models with linear attention: set it to"
    " auto, which sends the merged weights"
)

NO_SHARED_SEQUENCES = (
    "learner.context_parallel_size is above 1, and ranks cannot share a sequence in layers of"
    " linear attention, whose state goes from token to token: set it to 1"
)


def why_not_linear(spec: RunSpec, shape: ModelShape) -> str | None:
    """Return why a model's linear attention keeps the run from being trained, or None."""
    if shape.linear is None:
        return None
    return NO_ADAPTERS if spec.engine.weight_transport == "lora" else None
