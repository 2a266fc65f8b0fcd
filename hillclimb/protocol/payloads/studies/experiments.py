"""Payloads of experiments."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import JsonValue

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.results.comparison import ConfigDifference
from hillclimb.protocol.payloads.results.reports import ComparisonPayload
from hillclimb.protocol.payloads.studies.campaigns import CellState

Word = Literal["confirmed", "refuted", "inconclusive"]


class ExperimentRunPayload(Payload):
    """A run in an experiment."""

    number: int
    run_id: str | None
    """Null where the service refused it."""
    name: str | None
    role: Literal["baseline", "variant"]
    arm: str
    """Label of its configuration; runs of one arm are seed replicates."""
    seed: int
    """`schedule.seed` of its spec."""
    settings: dict[str, JsonValue] | None
    """Values by dotted key that make the cell of a sweep; null for a run that somebody added."""
    state: CellState
    why: str | None
    """The reason of a blocked or retryable run, in words."""


class ExperimentSummary(Payload):
    """An experiment in a list."""

    object: Literal["experiment"] = "experiment"
    key: str
    """Version label, unique in the project."""
    title: str
    parent: str | None
    """Key of the experiment that it goes on from."""
    num_runs: int
    created_at: datetime
    created_by: str
    updated_at: datetime


class ExperimentPayload(ExperimentSummary):
    """An experiment with what people wrote and its runs; the results are computed on request."""

    text: dict[str, Any]
    """Hypothesis, rationales of changes, watched metrics, commits, issues, next steps, remarks."""
    runs: list[ExperimentRunPayload]


class ExperimentList(Payload):
    """One page of experiments, newest first."""

    object: Literal["list"] = "list"
    data: list[ExperimentSummary]
    has_more: bool


class FamilyRate(Payload):
    """pass@1 over the runs of an arm, in [0, 1]."""

    value: float | None
    """Mean over runs and tasks."""
    low: float
    """Lower end of the 95 % interval, over tasks and seeds."""
    high: float
    """Upper end of the 95 % interval."""
    num_tasks: int
    num_runs: int
    sd: float | None
    """Standard deviation between the runs; null for fewer than two."""
    least: float | None
    """The lowest of the runs."""
    most: float | None
    """The highest of the runs."""


class FamilyChange(Payload):
    """A change of pass@1 between two arms, or two steps of one."""

    value: float | None
    """In [-1, 1], over the tasks that both sides have."""
    low: float
    """Lower end of the 95 % interval, over tasks and seeds."""
    high: float
    """Upper end of the 95 % interval."""
    covers_seeds: bool
    """False where no side has two runs: the interval covers the tasks alone."""
    paired: ComparisonPayload | None
    """The paired comparison of the pooled tasks; null without any."""


class ArmRates(Payload):
    """An arm at one step."""

    step: int
    all: FamilyRate
    envs: dict[str, FamilyRate]


class ArmChanges(Payload):
    """The changes of an arm, overall and by environment."""

    before_step: int
    after_step: int
    all: FamilyChange
    envs: dict[str, FamilyChange]


class ArmRun(Payload):
    """A run of an arm at the arm's last common step."""

    number: int
    run_id: str | None
    seed: int
    state: CellState
    status: str | None
    pass_at_1: float | None


class ArmResult(Payload):
    """The runs of one configuration, together."""

    arm: str
    role: Literal["baseline", "variant"]
    settings: dict[str, JsonValue] | None
    num_live: int
    """Runs that have not ended."""
    runs: list[ArmRun]
    first: ArmRates | None
    """At the first evaluation that all its runs have; null unless there is a later one."""
    last: ArmRates | None
    """At the last evaluation that all its runs have."""
    own_change: ArmChanges | None
    """From its first to its last evaluation."""
    against_baseline: ArmChanges | None
    """From the baseline's last evaluation; null for the baseline."""
    config_diff: list[ConfigDifference]
    """Its spec (`b`) against the reference's (`a`), without seed and name."""


class WatchedPayload(Payload):
    """A watched metric of one arm."""

    sentence: str
    """The threshold as written."""
    is_change: bool
    reading: Literal["met", "missed", "undecided"]
    value: float | None
    low: float | None
    """Lower end of the 95 % interval; null where a single run has none."""
    high: float | None
    paired_verdict: str | None
    """Of the pooled paired comparison."""
    why: str


class ArmVerdictPayload(Payload):
    """The verdict on one configuration."""

    arm: str
    word: Word
    readings: list[WatchedPayload]


class ExperimentResults(Payload):
    """The results of an experiment so far, computed from stored rows."""

    object: Literal["experiment_results"] = "experiment_results"
    key: str
    rule: str
    """Version of the rule of `word`."""
    paired_rule: str
    """Version of the rule of the paired comparisons."""
    decoding: str | None
    """Decoding of the figures; null without an evaluation."""
    word: Word
    why: str
    is_complete: bool
    """Whether every run has ended."""
    reference: str | None
    """What the specs are compared with, in words; null where there is nothing."""
    arms: list[ArmResult]
    """The baseline first."""
    verdicts: list[ArmVerdictPayload]


class CurvePoint(Payload):
    """pass@1 of an arm at one step, over the runs that evaluated it."""

    step: int
    value: float
    low: float
    high: float
    num_runs: int
    num_tasks: int


class SignalWindow(Payload):
    """Share of groups with signal of an arm's runs in a window of steps."""

    first_step: int
    last_step: int
    signal_ratio: float | None
    """Null where no group has two grades."""
    num_groups: int


class ArmFigures(Payload):
    """The data of one arm in the figures."""

    arm: str
    role: Literal["baseline", "variant"]
    num_train_tasks: int | None
    """Training tasks that its trainers announced; null before any has."""
    curve: list[CurvePoint]
    env_curves: dict[str, list[CurvePoint]]
    signal: dict[str, list[SignalWindow]]
    """By environment, the same windows for all arms."""


class ExperimentFigures(Payload):
    """The data of an experiment's figures."""

    object: Literal["experiment_figures"] = "experiment_figures"
    key: str
    decoding: str | None
    arms: list[ArmFigures]
