"""`CampaignSpec`: evaluations of several models on several datasets, repeated, as one object."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator
from pydantic.config import JsonDict

from hillclimb.spec.section import Section
from hillclimb.spec.training.evaluation import DecodingSpec

MAX_CELLS = 256
"""Runs of one campaign."""
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}$")]

_ONE_OF_BOTH: JsonDict = {
    "oneOf": [
        {"required": [name], "properties": {name: {"type": "string"}}}
        for name in ("source", "checkpoint")
    ]
}


class CampaignModel(Section):
    """A policy to evaluate: a model, or a checkpoint of a run."""

    model_config = ConfigDict(json_schema_extra=_ONE_OF_BOTH)

    name: Label
    """Name in the campaign's table."""
    source: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """As `model.source` of a run."""
    checkpoint: Annotated[str, Field(pattern=r"^run_[0-9a-z]{10,40}@\d{1,9}$")] | None = None
    """`RUN@STEP`: the newest checkpoint of that step; model and adapter settings are the run's."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.source is None) == (self.checkpoint is None):
            raise ValueError(f"the model {self.name!r} needs either a source or a checkpoint")
        return self


class CampaignSpec(Section):
    """Models × datasets × decodings × repeats; each is evaluated under the settings of `base`."""

    name: Label
    """A name for people; need not be unique."""
    base: dict[str, JsonValue]
    """A run spec without model and dataset: environments, rollouts, engine, backend."""
    models: Annotated[tuple[CampaignModel, ...], Field(min_length=1, max_length=64)]
    """The first one is the baseline of the comparisons."""
    datasets: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}@\d{1,7}$")], ...],
        Field(max_length=32),
    ] = ()
    """Versions `NAME@3`, so that a repetition evaluates the same tasks; none: the tasks of
    `base`."""
    decodings: Annotated[tuple[DecodingSpec, ...], Field(max_length=8)] = ()
    """Instead of those of `base`. Greedy ones are evaluated once, whatever `repeats` is."""
    repeats: Annotated[int, Field(ge=1, le=32)] = 1
    """Evaluations of each model on each dataset, each with a sampling seed of its own."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for key, names in (
            ("models", [model.name for model in self.models]),
            ("datasets", list(self.datasets)),
            ("decodings", [decoding.name for decoding in self.decodings]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{key} has {twice[0]!r} twice: name each once")
        return self

    @model_validator(mode="after")
    def _is_not_too_large(self) -> Self:
        number = len(self.models) * max(1, len(self.datasets)) * self.repeats
        if number > MAX_CELLS:
            raise ValueError(
                f"models, datasets and repeats make {number} evaluations, and a campaign has at"
                f" most {MAX_CELLS}: lower repeats or split it"
            )
        return self
