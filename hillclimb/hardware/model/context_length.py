"""Rule that rollouts are not longer than the model's positions; the trainer would refuse them."""

from __future__ import annotations

from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.run import RunSpec


def why_too_long(spec: RunSpec, shape: ModelShape | None) -> str | None:
    """Return why rollouts exceed the model's context, or None; the trainer would refuse the same.

    `trainer.inputs.model.rope` and `trainer.jobs.assembly` decide it for unknown models.
    """
    rope, length = spec.model.rope, spec.rollout.max_sequence_length
    trained = shape.num_positions if shape is not None else None
    if rope is None:
        if trained is None or length <= trained:
            return None
        return (
            f"rollout.max_sequence_length ({length}) is larger than the model's {trained}"
            " positions: lower it, or extend them with model.rope"
        )
    original = rope.original_max_position_embeddings
    if trained is not None and original > trained:
        return (
            f"model.rope.original_max_position_embeddings is {original}, and the model was trained"
            f" with at most {trained} positions: lower it"
        )
    stretched = int(original * rope.factor)
    if length <= stretched:
        return None
    return (
        f"rollout.max_sequence_length ({length}) is larger than the {stretched} positions that"
        " model.rope extends the model's to: lower it, or raise model.rope.factor"
    )
