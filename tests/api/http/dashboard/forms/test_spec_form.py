"""The form of a spec: no key is missing, and what it shows is what it makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.http.dashboard.forms.spec_fields import spec_form
from api.http.dashboard.forms.spec_values import (
    NotOnForm,
    TextRejected,
    document_of,
    read_text,
    texts_of,
    write_text,
)
from hillclimb.hardware.presets.presets import presets
from hillclimb.spec.run import RunSpec

EXAMPLES = sorted(Path("examples").glob("*.yaml"))
SPECS = {
    **{name: each.spec for name, each in presets().items()},
    **{path.stem: json.loads(json.dumps(yaml.safe_load(path.read_text()))) for path in EXAMPLES},
}
RUNS = {name: spec for name, spec in SPECS.items() if "data" in spec and "name" in spec}


def keys_of(value: Any, path: str = "") -> set[str]:
    if not isinstance(value, dict) or not value:
        return {path}
    below = [keys_of(each, f"{path}.{key}".strip(".")) for key, each in value.items()]
    return set().union(*below)


@pytest.mark.parametrize("name", RUNS)
def test_a_spec_comes_back_from_the_form_as_it_went_in(name: str) -> None:
    assert document_of(texts_of(RUNS[name])) == RUNS[name]
    assert read_text(write_text(RUNS[name])) == RUNS[name]


@pytest.mark.parametrize("name", RUNS)
def test_a_resolved_spec_comes_back_equal(name: str) -> None:
    resolved = RunSpec.model_validate(RUNS[name])
    document = document_of(texts_of(resolved.model_dump(mode="json")))
    assert RunSpec.model_validate(document) == resolved


def test_every_key_of_the_spec_has_a_field_with_a_help_text() -> None:
    form = spec_form()
    paths = {each.path for each in form.all_fields()} | {each.path for each in form.all_groups()}
    spec = RunSpec.model_validate({"name": "x", "data": {"env_keys": ["booking"]}})
    resolved = keys_of(spec.model_dump(mode="json")) - {"schema_version"}
    assert {key for key in resolved if key not in paths} == set()
    assert [each.path for each in form.all_fields() if not each.help] == []


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("optimizer.lr", "2.5e-4", 2.5e-4),
        ("optimizer.lr", "fast", "fast"),
        ("optimizer.lr", "nan", "nan"),
        ("schedule.total_steps", "10", 10),
        ("optimizer.max_grad_norm", "null", None),
        ("tags", "1, two", ["1", "two"]),
        ("optimizer.betas", "0.9, 0.95,", [0.9, 0.95]),
        ("data.env_keys", '["a, b"]', ["a, b"]),
        ("data.dataset", "fleet@3", "fleet@3"),
        ("data.dataset", "{name: fleet, version: 3}", {"name": "fleet", "version": 3}),
        ("environment.overrides", "booking: {max_turns: 3}", {"booking": {"max_turns": 3}}),
        ("environment.overrides", "a: [", "a: ["),
        ("learner.lora", "{}", {}),
        ("learner.lora", "null", None),
        ("eval.before_training", "false", False),
        ("name", "null", "null"),
    ],
)
def test_the_text_of_a_field_is_a_value(path: str, text: str, value: object) -> None:
    found: Any = document_of({path: text})
    for key in path.split("."):
        found = found[key]
    assert found == value
    assert type(found) is type(value)


def test_an_empty_field_leaves_its_key_out() -> None:
    assert document_of({"name": "x", "optimizer.lr": "  ", "learner.lora": ""}) == {"name": "x"}
    assert document_of({"learner.lora.rank": "8"}) == {"learner": {"lora": {"rank": 8}}}


@pytest.mark.parametrize(
    "text", ["a: [", "- x", "", "a: 1\na: 2", 'a: "\\ud800"', "&a [*a]", 'a: "\\0"']
)
def test_a_text_that_is_no_spec_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(TextRejected, match=r"^(The text|A spec) .*\.$"):
        read_text(text)


def test_a_key_without_a_field_is_named_and_not_dropped() -> None:
    with pytest.raises(NotOnForm, match=r"optimizer\.momentum, data"):
        texts_of({"name": "x", "optimizer": {"momentum": 0.9}, "data": "booking"})
