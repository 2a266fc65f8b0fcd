"""The section `rollout`: sampling and lengths of training rollouts."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from hillclimb.spec.section import Section


class RolloutSpec(Section):
    """Sampling and lengths of training rollouts."""

    n_samples_per_prompt: Annotated[int, Field(ge=2, le=256)] = 8
    """Rollouts per task, which form a group with a common baseline (count)."""
    temperature: Annotated[float, Field(gt=0.0, le=5.0)] = 1.0
    """Sampling temperature; log-probs are computed at the same temperature."""
    max_input_length: Annotated[int, Field(ge=16, le=1_000_000)] = 880
    """Longest context before a turn (tokens); a rollout with a longer one stops there."""
    max_generate_length: Annotated[int, Field(ge=1, le=1_000_000)] = 96
    """Longest model turn (tokens)."""
    max_sequence_length: Annotated[int, Field(ge=32, le=2_000_000)] = 1024
    """Longest whole trajectory (tokens); at most the model's number of positions."""

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        if self.max_input_length + self.max_generate_length > self.max_sequence_length:
            raise ValueError(
                "max_input_length + max_generate_length is larger than max_sequence_length"
                f" ({self.max_input_length} + {self.max_generate_length} >"
                f" {self.max_sequence_length}): a last turn would not fit; lower one of the two"
            )
        return self
