"""The section `schedule`: batch sizes, steps and deadlines."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from hillclimb.spec.section import Seconds, Section, refuse_unnested


class ScheduleSpec(Section):
    """Number of steps, batch sizes and deadlines."""

    total_steps: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """Training steps; one step samples one batch of groups (count)."""
    epochs: Annotated[float, Field(gt=0.0, le=10_000.0)] | None = None
    """Passes over the training tasks, instead of `total_steps`: the service turns them into steps,
    rounded up, and stores those, with `epochs` null. null: `total_steps` counts. `--set
    schedule.total_steps=N` sets it to null."""
    train_batch_size: Annotated[int, Field(ge=1, le=65_536)] = 20
    """Prompts per step, distributed over the environments by `data.sampling` (count)."""
    mini_batch_size: Annotated[int, Field(ge=1, le=65_536)] = 10
    """Prompts per optimizer step (count); must divide train_batch_size."""
    max_staleness_steps: Annotated[int, Field(ge=0, le=16)] = 0
    """Largest staleness: steps by which the weights at the start of a rollout may be older than
    those trained on it. 0: rollouts and updates alternate. From 1 on, rollouts of later steps
    continue during training and across updates; a slow one may be trained on up to this many steps
    later."""
    lr_warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Optimizer steps over which the learning rate rises linearly from 0."""
    step_timeout_s: Seconds = 1500.0
    """Deadline of a training step, and of an evaluation under one decoding (seconds). Exceeding it
    pauses the run; the message names the phase that hung."""
    run_timeout_s: Annotated[float, Field(gt=0.0, le=31_536_000.0)] | None = None
    """Deadline of the run (seconds), counted over its attempts from checkpoint to checkpoint. Then
    the last step is saved and the run ends. null: no deadline."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of sampling and of all other randomness of the trainer."""

    @model_validator(mode="after")
    def _deadlines_nest(self) -> Self:
        if self.run_timeout_s is not None:
            refuse_unnested(
                "step_timeout_s", self.step_timeout_s, "run_timeout_s", self.run_timeout_s
            )
        return self

    @model_validator(mode="after")
    def _mini_batches_are_equal(self) -> Self:
        if self.train_batch_size % self.mini_batch_size:
            raise ValueError(
                f"mini_batch_size ({self.mini_batch_size}) must divide train_batch_size"
                f" ({self.train_batch_size}): choose a divisor"
            )
        return self
