"""Whether rollouts are longer than the model has positions: the trainer would refuse to start."""

from __future__ import annotations

from trainer.contract.clusters.shapes import ModelShape
from trainer.contract.spec import RunSpec


def why_too_long(spec: RunSpec, shape: ModelShape | None) -> str | None:
    """Say it as `trainer.rope` and `trainer.wiring` would, as far as the positions are known."""
    rope, length = spec.model.rope, spec.rollout.max_sequence_length
    trained = shape.num_positions if shape is not None else None
    if rope is None:
        if trained is None or length <= trained:
            return None
        return (
            f"rollout.max_sequence_length ({length}) is larger than the model's {trained}"
            " positions: lower it, or stretch them with model.rope"
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
        " model.rope stretches the model's to: lower it, or raise model.rope.factor"
    )
