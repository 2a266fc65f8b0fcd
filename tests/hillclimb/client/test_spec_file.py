"""Spec files and `--set`."""

from pathlib import Path

import pytest

from hillclimb.client.errors import SpecFileError
from hillclimb.client.spec_file import assign, parse_value, read_spec, with_assignments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("2.5E-4", 2.5e-4),
        ("3", 3),
        ("null", None),
        ("[booking, github]", ["booking", "github"]),
        ("demo", "demo"),
        ("true", True),
    ],
)
def test_a_value_is_yaml_and_scientific_notation_is_a_number(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_set_makes_the_sections_it_needs() -> None:
    spec: dict[str, object] = {"name": "a"}
    assign(spec, "environment.overrides.booking.max_turns=4")
    assert spec["environment"] == {"overrides": {"booking": {"max_turns": 4}}}


def test_set_finds_an_environment_with_a_dot_in_its_key() -> None:
    spec: dict[str, object] = {"name": "a"}
    assign(spec, 'environment.overrides."forum.v2".max_turns=4')
    assign(spec, 'environment.openenv."forum.v2"={url: "http://127.0.0.1:1"}')
    assert spec["environment"] == {
        "overrides": {"forum.v2": {"max_turns": 4}},
        "openenv": {"forum.v2": {"url": "http://127.0.0.1:1"}},
    }


def test_set_fills_a_section_that_a_plan_gives_as_null() -> None:
    spec: dict[str, object] = {"budget": None, "learner": {"lora": None}}
    assign(spec, "budget.usd=5")
    assign(spec, "learner.lora.rank=8")
    assert spec == {"budget": {"usd": 5}, "learner": {"lora": {"rank": 8}}}


@pytest.mark.parametrize(
    "assignment", ["lr", "=3", "name.x=1", "a=[1", 'a."b=1', 'a."b"c=1', 'a.b"c"=1']
)
def test_a_malformed_assignment_is_a_sentence(assignment: str) -> None:
    with pytest.raises(SpecFileError):
        assign({"name": "a"}, assignment)


@pytest.mark.parametrize("content", [b"- 1\n", b"a: [", b"\xff\xfe\x00", b""])
def test_a_file_that_is_not_a_mapping_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecFileError):
        read_spec(path)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecFileError, match="No such file"):
        read_spec(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: 2026-01-01", "/name: a date is not allowed"),
        ("optimizer: {lr: .nan}", "/optimizer/lr: nan is not a finite number"),
        ("on: 1", "the key True is not text"),
        ('name: "\\ud800"', "/name: .* is not valid Unicode"),
        ("name: !!set {a}", "/name: a set is not allowed"),
        ("a: &x [*x]", "nested too deeply"),
        (f"a: {'[' * 5000}", "nested too deeply"),
        ("name: 2026-13-45", "neither YAML nor JSON"),
    ],
)
def test_what_yaml_knows_and_json_does_not_is_a_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecFileError, match=sentence):
        read_spec(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("name: a\nabout: café\n".encode("latin-1"), "line 2 is not UTF-8: save the file in"),
        ("name: a\n".encode("utf-16"), "line 1 is not UTF-8"),
        (b"", "is empty: `hillclimb init FILE` writes"),
        (b"# only a comment\n", "is empty"),
        (b"- a\n", "is not a mapping of sections, such as `data:"),
        (b"a:\n\t- b\n", "in line 2, column 1"),
    ],
)
def test_a_file_that_is_no_spec_is_told_what_to_do(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecFileError, match=sentence) as refused:
        read_spec(path)
    assert "codec" not in str(refused.value)
    assert "unicode string" not in str(refused.value)


def test_assigned_steps_count_where_the_file_has_epochs() -> None:
    spec = {"schedule": {"epochs": 20}}
    counted = with_assignments(spec, ("schedule.total_steps=10",))
    assert counted["schedule"] == {"epochs": None, "total_steps": 10}
    both = with_assignments(spec, ("schedule.total_steps=10", "schedule.epochs=3"))
    assert both["schedule"] == {"epochs": 3, "total_steps": 10}
    assert with_assignments({}, ("schedule.total_steps=4",))["schedule"] == {"total_steps": 4}
