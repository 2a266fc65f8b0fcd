"""Rules for models with linear attention: what was never compared is refused."""

from __future__ import annotations

from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.run import RunSpec

NO_ADAPTERS = (
    "engine.weight_transport lora was never compared for models with linear attention: set it to"
    " auto, which sends the merged weights"
)


def why_not_linear(spec: RunSpec, shape: ModelShape) -> str | None:
    """Return why a model's linear attention keeps the run from being trained, or None."""
    if shape.linear is None:
        return None
    return NO_ADAPTERS if spec.engine.weight_transport == "lora" else None
