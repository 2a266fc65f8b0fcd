"""`IssueSpec` and `IssueChanges`: what a person says about an issue; no figures."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from hillclimb.spec.section import Section, never_null
from hillclimb.stats.trajectories.patterns.pattern import Severity
from hillclimb.stats.trajectories.symptoms import FAILURE, SYMPTOMS

EvalPlace = Annotated[str, Field(pattern=r"^[^@\s]{1,100}@[0-9]{1,9}$")]
"""`RUN@STEP`: the evaluations of a step of a run."""
Title = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=4000)]
EnvName = Annotated[str, Field(min_length=1, max_length=200)]
DecodingName = Annotated[str, Field(min_length=1, max_length=40)]
SymptomName = Annotated[str, Field(max_length=60, json_schema_extra={"enum": list(SYMPTOMS)})]
_ALWAYS = ("title", "severity", "description", "impact", "symptom", "baseline")
"""What an issue cannot be without."""


class IssueSpec(Section):
    """An issue: a symptom, perhaps of one environment, and the evaluations that measure it."""

    title: Title
    """A few words, such as `Cannot signal done`."""
    severity: Severity
    """`critical`, `high`, `medium` or `low`."""
    description: Text = ""
    """What happens."""
    impact: Text = ""
    """What it costs."""
    symptom: SymptomName = FAILURE
    """A failure pattern, `failure`, `tool_error`, `repeated_call`, `turn_too_long`, `infra_error`
    or `ungraded`."""
    env_key: EnvName | None = None
    """Only this environment; null: all of them."""
    decoding: DecodingName | None = None
    """Null: the first that both evaluations have, the highest temperature first."""
    baseline: EvalPlace
    """RUN@STEP of the evaluation before."""
    after: EvalPlace | None = None
    """RUN@STEP of the evaluation after; null: there is none yet."""

    @model_validator(mode="after")
    def _symptom_exists(self) -> Self:
        require_symptom(self.symptom)
        return self


class IssueChanges(Section):
    """Changes of an issue: only the keys that are sent change."""

    model_config = ConfigDict(json_schema_extra=never_null(*_ALWAYS))

    title: Title | None = None
    severity: Severity | None = None
    description: Text | None = None
    impact: Text | None = None
    symptom: SymptomName | None = None
    """As of an issue."""
    env_key: EnvName | None = None
    """Null: all environments."""
    decoding: DecodingName | None = None
    """Null: the first that both evaluations have."""
    baseline: EvalPlace | None = None
    """RUN@STEP of the evaluation before."""
    after: EvalPlace | None = None
    """RUN@STEP of the evaluation after; null: there is none yet."""

    @model_validator(mode="after")
    def _makes_an_issue(self) -> Self:
        for name in _ALWAYS:
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"an issue has a {name}: leave the key out to keep it")
        if self.symptom is not None:
            require_symptom(self.symptom)
        return self


class IssueResolution(Section):
    """The end of an issue."""

    resolution: Annotated[str, Field(max_length=4000)] = ""
    """What ended it, in words; the status stays computed."""


def require_symptom(name: str) -> None:
    """Refuse a name that is no symptom.

    Raises:
        ValueError: it lists the symptoms.
    """
    if name not in SYMPTOMS:
        raise ValueError(f"there is no symptom {name!r}: use one of {', '.join(SYMPTOMS)}")
