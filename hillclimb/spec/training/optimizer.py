"""The section `optimizer`: AdamW and its learning-rate schedule."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.spec.section import Section, Share, reject_unused


class OptimizerSpec(Section):
    """The optimizer of the policy."""

    type: Literal["adamw"] = "adamw"
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101)."""
    lr: Annotated[float, Field(gt=0.0, le=1.0)] = 2.5e-4
    """Peak learning rate."""
    betas: tuple[
        Annotated[float, Field(ge=0.0, lt=1.0)], Annotated[float, Field(ge=0.0, lt=1.0)]
    ] = (0.9, 0.99)
    """Decay rates of the first and second moment."""
    eps: Annotated[float, Field(gt=0.0, le=1e-2)] = 1e-8
    """Added to the denominator."""
    weight_decay: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Decoupled weight decay per step, times the learning rate."""
    max_grad_norm: Annotated[float, Field(gt=0.0, le=1e6)] | None = 1.0
    """Gradients are clipped to this norm; null: no clipping."""
    lr_scheduler: Literal["constant", "linear", "cosine"] = "constant"
    """Decay of the learning rate over the training steps, after `schedule.lr_warmup_steps`."""
    min_lr_ratio: Share = 0.0
    """Final learning rate of `linear` and `cosine`, as a share of `lr`."""

    @model_validator(mode="after")
    def _floor_is_read(self) -> Self:
        reject_unused(self, ("min_lr_ratio",), only=("lr_scheduler", "linear", "cosine"))
        return self
