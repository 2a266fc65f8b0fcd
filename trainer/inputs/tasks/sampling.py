"""Settings that split the prompts of a step between the environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from hillclimb.spec.data import CurriculumSpec, DataSpec
from trainer.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSampling:
    """The settings of a `TaskSampler`; `DataSpec` says what they mean."""

    mode: Literal["balanced", "proportional", "hybrid"] = "balanced"
    min_samples_per_env: int = 1
    """Read in hybrid mode."""
    curriculum: CurriculumSpec | None = None

    @classmethod
    def of(cls, data: DataSpec) -> PromptSampling:
        """Return the settings of a spec's section `data`."""
        return cls(
            mode=data.sampling,
            min_samples_per_env=data.min_samples_per_env,
            curriculum=data.curriculum,
        )

    @property
    def minimum(self) -> int:
        """Prompts that every environment gets whatever its weight."""
        return self.min_samples_per_env if self.mode == "hybrid" else 0

    def weight(self, num_tasks: int) -> int:
        """Return the weight of an environment of so many tasks."""
        return 1 if self.mode == "balanced" else num_tasks

    def state(self) -> dict[str, JsonValue]:
        """Return the settings as JSON, under their names in the section `data`."""
        return {
            "sampling": self.mode,
            "min_samples_per_env": self.min_samples_per_env,
            "curriculum": self.curriculum.model_dump(mode="json") if self.curriculum else None,
        }

    def check_same(self, saved: JsonValue) -> None:
        """Refuse a `state` of other settings: a position under them means nothing under these.

        Raises:
            CheckpointError: the settings differ; the message says which and what to do.
        """
        if not isinstance(saved, dict) or saved.keys() != self.state().keys():
            raise CheckpointError("sampler state is malformed: the settings it was taken under")
        for name, value in self.state().items():
            if saved.get(name) != value:
                raise CheckpointError(
                    f"the checkpoint's tasks were drawn with data.{name} = {saved.get(name)}:"
                    f" set it to that ({value} asked for)"
                )


BALANCED = PromptSampling()
"""As many prompts of each environment, or one more: the default of a spec."""
