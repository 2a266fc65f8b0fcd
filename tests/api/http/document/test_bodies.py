"""The schemas of bodies take what the service takes, and refuse what it refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import assume, example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter, ValidationError

from api.admission.annotations import RunAnnotation
from api.admission.campaigns.request import CampaignModel
from api.admission.experiments.request import WATCHED_FORM, Watched
from api.http.routes.access.bodies import CreateKey, SetQuotas
from api.http.routes.agents.agent_keys import NewAgentKey
from api.http.routes.clusters.clusters import ExtendBudget
from api.results.issues.request import IssueChanges, IssueSpec
from api.tables.access.secrets.request import MIN_VALUE_CHARS, SecretValue
from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.lint.lint import LintOptions
from hillclimb.protocol.events import IngestBatch
from hillclimb.protocol.launch import RegisterRunner
from hillclimb.spec.rules.project_defaults import ProjectDefaults
from hillclimb.spec.section import MOMENT_FORM, Moment
from hillclimb.stats.verdicts.printed import CELL_FORM, PrintedRate

KEY = {"name": "ci", "scopes": ["runs:read"]}
AGENT = {"name": "agent"}
RUNNER = {"name": "box", "hostname": "box"}
ISSUE = {"title": "a", "severity": "high", "baseline": "run_1@0"}
MODEL, CHECKPOINT = {"name": "a"}, {"checkpoint": "run_0123456789@1"}
ENV = {"scope": "env", "key": "booking", "reason": "flaky"}
PHASE = {"trainer_seq": 1, "at": "2026-01-02T03:04:05Z", "step": 0, "phase": "eval"}
TOOLS = {"tool_tokens": {"booking": 10.0}}


def at(moment: str) -> dict[str, str]:
    return {"expires_at": moment}


@pytest.mark.parametrize(
    ("model", "taken", "refused"),
    [
        (NewAgentKey, AGENT | {"num_runs": 3.0}, AGENT | {"num_runs": 3.5}),
        (NewAgentKey, AGENT | {"num_runs": 3}, AGENT | {"num_runs": True}),
        (NewAgentKey, AGENT | {"num_runs": 0}, AGENT | {"num_runs": "3"}),
        (SetQuotas, {"queued_runs": 3.0}, {"queued_runs": True}),
        (RegisterRunner, RUNNER | {"slots": 2.0}, RUNNER | {"slots": 65.0}),
        (CreateKey, KEY | at("9998-12-31T23:59:59-12:00"), KEY | at("9999-01-01T00:00:00Z")),
        (CreateKey, KEY | {"owner": "a@b"}, KEY | {"owner": "a\b@b"}),
        (Exclusion, ENV | at("1970-01-01T00:00:00+14:00"), ENV | at("1969-12-31T23:59:59-12:00")),
        (LintOptions, TOOLS | {"max_input_length": 99}, TOOLS | {"max_input_length": 0.5}),
        (LintOptions, TOOLS | {"max_input_length": 99}, TOOLS),
        (LintOptions, {"detectable_change": 0.001}, {"detectable_change": 5e-324}),
        (RunAnnotation, {"links": {"pr": "https://example.org"}}, {"links": {"": None}}),
        (ProjectDefaults, {"secrets": {"FLEET_API_KEY": "a"}}, {"secrets": {"PATH": "a"}}),
        (ExtendBudget, {"usd": 0, "hours": 1}, {"usd": 0}),
        (ExtendBudget, {"usd": 1}, {}),
        (CampaignModel, MODEL | {"source": "b", "checkpoint": None}, MODEL),
        (CampaignModel, MODEL | {"source": "b"}, MODEL | {"source": "b"} | CHECKPOINT),
        (IssueSpec, ISSUE | {"symptom": "max_turns"}, ISSUE | {"symptom": "bad luck"}),
        (IssueChanges, {"env_key": None}, {"title": None}),
        (IngestBatch, {"events": [PHASE | {"type": "phase.started"}]}, {"events": [PHASE]}),
    ],
)
def test_a_body_is_refused_by_its_schema_as_by_the_service(
    app: FastAPI, model: type[BaseModel], taken: dict[str, Any], refused: dict[str, Any]
) -> None:
    document = app.openapi()
    schema = document["components"]["schemas"].get(model.__name__) or model.model_json_schema()
    validator = Draft202012Validator(schema | {"components": document["components"]})
    model.model_validate(taken)
    assert list(validator.iter_errors(taken)) == []
    with pytest.raises(ValidationError):
        model.model_validate(refused)
    assert list(validator.iter_errors(refused))


@given(st.integers(1, 9999))
@example(1969)
@example(1970)
@example(9998)
@example(9999)
def test_the_years_of_a_moment_are_those_of_its_pattern(year: int) -> None:
    written = f"{year:04}-06-01T00:00:00Z"
    if re.match(MOMENT_FORM, written):
        assert TypeAdapter(Moment).validate_python(written).year == year
    else:
        with pytest.raises(ValidationError):
            TypeAdapter(Moment).validate_python(written)


@given(st.from_regex(WATCHED_FORM, fullmatch=True))
def test_a_threshold_of_the_documents_form_is_read(written: str) -> None:
    assert TypeAdapter(Watched).validate_python(written).operator in written


@given(st.from_regex(CELL_FORM, fullmatch=True))
def test_a_rate_of_the_documents_form_is_read(written: str) -> None:
    passed, _, of = written.partition("/")
    assume(not of or int(passed) <= int(of) > 0)
    assert PrintedRate.parse(written).text == written


def test_a_secret_has_the_length_that_the_store_requires() -> None:
    assert SecretValue.model_json_schema()["properties"]["value"]["minLength"] == MIN_VALUE_CHARS


def test_a_mapping_has_no_keys_beside_those_of_its_pattern(app: FastAPI) -> None:
    def open_mappings(node: object) -> list[object]:
        if isinstance(node, list):
            return [each for part in node for each in open_mappings(part)]
        if not isinstance(node, dict):
            return []
        is_open = "patternProperties" in node and node.get("additionalProperties") is not False
        inner = [each for part in node.values() for each in open_mappings(part)]
        return [*inner, node] if is_open else inner

    assert open_mappings(app.openapi()) == []
