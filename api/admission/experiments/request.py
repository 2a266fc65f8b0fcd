"""Bodies of the requests about experiments; everything in them is text, none of it a result."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from hillclimb.spec.rules.dotted_keys import key_parts
from hillclimb.spec.section import Section, never_null

MAX_RUNS = 256
"""Runs of one experiment."""
MAX_SWEEP = 64
"""Runs of one sweep."""
MAX_SEED = 2**31 - 1
RESERVED = ("changelog",)
"""Keys that would hide a route."""
Role = Literal["baseline", "variant"]
Line = Annotated[str, Field(min_length=1, max_length=500)]
Lines = Annotated[tuple[Line, ...], Field(max_length=64)]
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
RunId = Annotated[str, Field(pattern=r"^run_[0-9a-z]{10,40}$")]
Arm = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,80}$")]
DottedKey = Annotated[str, Field(min_length=1, max_length=300)]
_WATCHED = re.compile(
    r"^\s*(?:(?P<over>mean|last|min|max)\(\s*(?P<inner>[^\s()]+)\s*\)|(?P<metric>[^\s()<>=]+))"
    r"\s*(?P<operator>>=|<=|>|<)\s*(?P<bound>[+-]?[0-9][0-9.eE+-]*|[+-]?\.[0-9][0-9eE+-]*)\s*$"
)
_METRIC_NAME = r"[A-Za-z0-9_@][A-Za-z0-9_@./:-]{0,199}"
_METRIC = rf"{_METRIC_NAME}(\[[^\s()<>=\[\]]{{1,64}}\])?"
WATCHED_FORM = (
    rf"^\s*((mean|last|min|max)\(\s*{_METRIC}\s*\)|{_METRIC})"
    r"\s*(>=|<=|>|<)\s*[+-]?[0-9]{1,12}(\.[0-9]{1,12})?(e-[0-9]{1,2})?\s*$"
)
"""How a threshold is written; the service also reads other spellings of the same numbers."""


class Rationale(Section):
    """The reason of a change; the values come from the specs of the runs."""

    key: DottedKey
    """Dotted key of a run spec, or words for a change that is in none."""
    rationale: Annotated[str, Field(max_length=2000)]


class Commit(Section):
    """A commit that the experiment tests."""

    sha: Annotated[str, Field(pattern=r"^[0-9a-f]{7,64}$")]
    summary: Annotated[str, Field(max_length=300)] = ""


class ExperimentIssue(Section):
    """A problem that the experiment found or fixed."""

    title: Line
    severity: Literal["critical", "high", "medium", "low"] = "medium"
    description: Annotated[str, Field(max_length=2000)] = ""


def _read_watched(value: object) -> object:
    """Turn `eval/all/pass_at_1 >= +0.05` into the fields of a watched metric."""
    if not isinstance(value, str):
        return value
    match = _WATCHED.match(value[:1000])
    if match is None:
        raise ValueError(
            f"{value[:100]!r} is no threshold: write METRIC > NUMBER (also >=, <, <=), with a sign"
            " for a change from the baseline, as in eval/all/pass_at_1 >= +0.05, or"
            " min(METRIC) > NUMBER over the steps"
        )
    name, bracket, decoding = (match["inner"] or match["metric"]).partition("[")
    if bracket and not decoding.endswith("]"):
        raise ValueError(f"{value[:100]!r}: close the decoding's bracket")
    return {
        "metric": name,
        "decoding": decoding.removesuffix("]") or None,
        "over": match["over"],
        "operator": match["operator"],
        "bound": _number(match["bound"]),
        "is_change": match["bound"][0] in "+-",
    }


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number") from error


class WatchedMetric(Section):
    """A metric with its threshold; `eval/all/pass_at_1 >= +0.05` is the same as its fields."""

    metric: Annotated[str, Field(pattern=rf"^{_METRIC_NAME}$")]
    """Name as stored; a name without slash is one of `reward/`. pass@k of evaluations
    (`eval/{env}/pass_at_{k}`) is computed from outcomes."""
    operator: Literal[">", ">=", "<", "<="]
    bound: Annotated[float, Field(ge=-1e12, le=1e12)]
    is_change: bool = False
    """The bound is of the change from the baseline, not of the value."""
    over: Literal["mean", "last", "min", "max"] | None = None
    """How the steps become one figure; null: `last` for evaluations, else `mean`. pass@k is always
    that of the last evaluation."""
    decoding: Annotated[str, Field(max_length=64)] | None = None
    """Decoding of an evaluation; null: that with the highest temperature."""

    @property
    def name(self) -> str:
        """The stored name."""
        return self.metric if "/" in self.metric else f"reward/{self.metric}"

    @property
    def sentence(self) -> str:
        """The threshold as it would be written."""
        name = self.name if self.decoding is None else f"{self.name}[{self.decoding}]"
        bound = f"{self.bound:+g}" if self.is_change else f"{self.bound:g}"
        return f"{f'{self.over}({name})' if self.over else name} {self.operator} {bound}"


Watched = Annotated[
    WatchedMetric,
    BeforeValidator(
        _read_watched,
        json_schema_input_type=WatchedMetric | Annotated[str, Field(pattern=WATCHED_FORM)],
    ),
]


class ExperimentText(Section):
    """The part of an experiment that people write."""

    title: Line
    hypothesis: Annotated[str, Field(max_length=4000)] = ""
    changes: Annotated[tuple[Rationale, ...], Field(max_length=64)] = ()
    """The rationale of each changed key."""
    watch: Annotated[tuple[Watched, ...], Field(max_length=32)] = ()
    """Thresholds that decide the hypothesis; none: `eval/all/pass_at_1 > +0`."""
    commits: Annotated[tuple[Commit, ...], Field(max_length=100)] = ()
    pull_request: Annotated[str, Field(max_length=300)] | None = None
    issues: Annotated[tuple[ExperimentIssue, ...], Field(max_length=64)] = ()
    works: Lines = ()
    """What works."""
    fails: Lines = ()
    """What does not."""
    next_steps: Lines = ()
    remarks: Annotated[str, Field(max_length=20_000)] = ""


class ExperimentSpec(ExperimentText):
    """A new experiment."""

    key: Key
    """Version label, unique in the project: `v0.2.4`."""
    parent: Key | None = None
    """Experiment that this one goes on from."""
    baseline: RunId | None = None
    """A run that the others are compared with; a sweep can make its own."""

    @model_validator(mode="after")
    def _key_hides_no_route(self) -> Self:
        if self.key.lower() in RESERVED:
            raise ValueError(f"the key {self.key!r} is reserved: choose another one")
        return self

    @property
    def text(self) -> ExperimentText:
        """The part that is stored as text."""
        return ExperimentText.model_validate(
            {name: getattr(self, name) for name in ExperimentText.model_fields}
        )


class ExperimentEdit(Section):
    """Changes of an experiment: each key that is sent replaces the experiment's."""

    model_config = ConfigDict(json_schema_extra=never_null("title"))

    parent: Key | None = None
    title: Line | None = None
    hypothesis: Annotated[str, Field(max_length=4000)] | None = None
    changes: Annotated[tuple[Rationale, ...], Field(max_length=64)] | None = None
    watch: Annotated[tuple[Watched, ...], Field(max_length=32)] | None = None
    commits: Annotated[tuple[Commit, ...], Field(max_length=100)] | None = None
    pull_request: Annotated[str, Field(max_length=300)] | None = None
    issues: Annotated[tuple[ExperimentIssue, ...], Field(max_length=64)] | None = None
    works: Lines | None = None
    fails: Lines | None = None
    next_steps: Lines | None = None
    remarks: Annotated[str, Field(max_length=20_000)] | None = None

    def over(self, text: dict[str, Any]) -> ExperimentText:
        """Return the experiment's text with the keys that were sent; null empties one."""
        own = {name: getattr(self, name) for name in self.model_fields_set if name != "parent"}
        rest = {name: value for name, value in text.items() if name not in own}
        return ExperimentText.model_validate(
            rest | {name: value for name, value in own.items() if value is not None}
        )


class AddedRun(Section):
    """A run to add to an experiment."""

    run_id: RunId
    role: Role = "variant"
    arm: Arm | None = None
    """Label of its configuration: runs of one arm are seed replicates. Null: `baseline`, or the
    run's name."""


class SweptKey(Section):
    """A key of the run spec with the values to try."""

    key: DottedKey
    values: Annotated[tuple[JsonValue, ...], Field(min_length=1, max_length=MAX_SWEEP)]

    @model_validator(mode="after")
    def _values_are_finite_and_the_key_is_one(self) -> Self:
        key_parts(self.key)
        if any(isinstance(value, float) and not math.isfinite(value) for value in self.values):
            raise ValueError(f"{self.key} has a value that is not finite")
        return self


class SweepSpec(Section):
    """Runs of one spec under the combinations of some values, each with several seeds."""

    base: dict[str, JsonValue]
    """A run spec of kind `train`."""
    over: Annotated[tuple[SweptKey, ...], Field(max_length=2)] = ()
    """Up to two keys; their values make a grid. None: seed replicates of `base`."""
    seeds: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MAX_SEED)], ...], Field(min_length=1, max_length=32)
    ] = (0,)
    """Values of `schedule.seed`; the tasks stay the same."""
    arm: Arm | None = None
    """Label of the configuration; with `over` it stands before the values."""
    role: Role | None = None
    """Null: the first cell is the baseline of an experiment that has none; all others vary."""
    retry: bool = False
    """Launch the runs again that failed, were cancelled, or were refused."""

    @model_validator(mode="after")
    def _is_a_grid_of_bounded_size(self) -> Self:
        keys = [each.key for each in self.over]
        for name, items in (("over", keys), ("seeds", list(self.seeds))):
            if len(set(items)) < len(items):
                raise ValueError(f"{name} names something twice: list each once")
        if "schedule.seed" in keys or "name" in keys:
            raise ValueError("over may name neither schedule.seed, which is `seeds`, nor name")
        number = math.prod(len(each.values) for each in self.over) * len(self.seeds)
        if number > MAX_SWEEP:
            raise ValueError(
                f"the grid and its seeds make {number} runs, and a sweep has at most {MAX_SWEEP}:"
                " leave some out, or sweep twice"
            )
        if self.role == "baseline" and math.prod(len(each.values) for each in self.over) > 1:
            raise ValueError("one configuration is the baseline: sweep it alone, or leave role out")
        return self
