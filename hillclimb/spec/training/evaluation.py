"""The section `eval`: held-out evaluation under named decodings."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from hillclimb.spec.section import Section


class DecodingSpec(Section):
    """Sampling settings of an evaluation; the name is part of every number made with them."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
    """Short name, such as `sampled` or `greedy`; `train` is taken."""
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 1.0
    """Sampling temperature; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Sample from the most likely tokens that make up this share of the probability; 1: from all.
    """
    n_samples_per_prompt: Annotated[int, Field(ge=1, le=256)] = 1
    """Rollouts per eval task: pass@k is defined for every k up to this."""

    @model_validator(mode="after")
    def _name_and_sampling_are_valid(self) -> Self:
        if self.name == "train":
            raise ValueError("the decoding name `train` is taken by training rollouts")
        if self.temperature == 0.0 and self.top_p < 1.0:
            raise ValueError(
                "greedy decoding takes the most likely token whatever top_p is: leave top_p out or"
                " set a temperature above 0"
            )
        if self.temperature == 0.0 and self.n_samples_per_prompt > 1:
            raise ValueError(
                "greedy decoding draws the same rollout every time: set n_samples_per_prompt to 1"
                " or a temperature above 0"
            )
        return self


class EarlyStopSpec(Section):
    """Conditions under which an evaluation starts no more rollouts (docs/verdicts.md)."""

    baseline_step: Annotated[int, Field(ge=0)] | None = None
    """Step of the evaluation of this run to compare with; null: the run's first one. Evaluations up
    to it are complete."""
    futility: Annotated[float, Field(gt=0.0, le=0.5)] | None = None
    """Also stop an evaluation whose remaining tasks would still decide the verdict with less than
    this chance, even if their mean change were the end of the 95 % interval so far that favours a
    decision most. null: only a decision stops it."""


def _read_switch(value: object) -> object:
    """Turn `true` into the section's defaults and `false` into null."""
    if isinstance(value, bool):
        return {} if value else None
    return value


class EvalSpec(Section):
    """Held-out evaluation before, during and after training."""

    before_training: bool = True
    """Evaluate the starting policy at step 0."""
    interval: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Evaluate every so many steps; 0 only before and after training."""
    decodings: Annotated[tuple[DecodingSpec, ...], Field(min_length=1, max_length=8)] = (
        DecodingSpec(name="sampled", temperature=1.0),
        DecodingSpec(name="greedy", temperature=0.0),
    )
    """Each evaluation runs all of these."""
    interval_decodings: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the decodings used by evaluations during training; null: all. The evaluations
    before and after training always run all of them."""
    budget_minutes: Annotated[float, Field(gt=0.0, le=1440.0)] | None = None
    """Minutes during which one evaluation may start rollouts, split evenly over its decodings.
    Rollouts in flight then finish, which does not shorten the next decoding; those not started have
    no outcome and count as missing in the coverage, not as 0. Environments take turns, so that each
    loses about the same number. null: no limit."""
    stop_when_decided: Annotated[
        EarlyStopSpec | None,
        BeforeValidator(_read_switch, json_schema_input_type=EarlyStopSpec | bool | None),
    ] = None
    """Start no more rollouts of an evaluation once its verdict over all tasks against an earlier
    one is IMPROVED or REGRESSED; `true` for the defaults. Its tasks are then taken in a random
    order, seeded by `schedule.seed`. null: every evaluation is complete."""
    pass_threshold: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """A rollout passes when its score is at least this."""

    @model_validator(mode="after")
    def _names_are_known_and_unique(self) -> Self:
        names = [decoding.name for decoding in self.decodings]
        if len(set(names)) != len(names):
            raise ValueError("two decodings have the same name: name each one differently")
        unknown = set(self.interval_decodings or ()) - set(names)
        if unknown:
            raise ValueError(
                f"interval_decodings names {sorted(unknown)}, which decodings does not define"
            )
        return self
