"""A row has one canonical form, whoever wrote it, and a malformed one costs a sentence."""

from __future__ import annotations

import hashlib
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.datasets.format.rows import (
    MAX_DEPTH,
    PromptlessRow,
    RowProblem,
    TaskRow,
    canonical_json,
    content_hash,
    fingerprint,
    row_hash,
)
from hillclimb.datasets.read.raw import FIELDS, METADATA_FIELDS, read_row
from hillclimb.datasets.read.reading import MAX_PROBLEMS, Reading
from tests.hillclimb.datasets.fuzz import NUM_JUNK, fuzzed, junk_values

TASK = {"key": "t1", "prompt": "Book a hotel.", "env_key": "booking"}


def read(**fields: Any) -> TaskRow:
    row = read_row(TASK | fields, 1)
    assert isinstance(row, TaskRow), row
    return row


def problem(**fields: Any) -> str:
    found = read_row(TASK | fields, 7)
    assert isinstance(found, RowProblem)
    return found.sentence


def test_both_names_of_every_field_are_read() -> None:
    exported = {
        "task_key": "t1",
        "prompt": "Book a hotel.",
        "env_id": "booking",
        "version": "v2",
        "data_id": "seed",
        "data_version": "v9",
        "env_variables": '{"CURRENT_DATE": "2026-03-01"}',
        "verifier_func": "def verify(env): ...",
        "task_modality": "computer_use",
        "difficulty": 2,
        "metadata": {"a": [1, None]},
    }
    named = {
        "key": "t1",
        "prompt": "Book a hotel.",
        "env_key": "booking",
        "env_version": "v2",
        "data_key": "seed",
        "data_version": "v9",
        "env_variables": {"CURRENT_DATE": "2026-03-01"},
        "verifier_code": "def verify(env): ...",
        "task_modality": "computer_use",
        "difficulty": 2,
        "metadata": {"a": [1, None]},
    }
    assert read_row(exported, 1) == read_row(named, 1)
    assert set(TaskRow.model_fields) == set(FIELDS) == set(named)


def test_a_row_of_fleets_list_of_tasks_is_read() -> None:
    """In the form of `TaskResponse`, with an environment as a platform may spell it."""
    row = {
        "key": "t1",
        "prompt": "Book a hotel.",
        "team_id": "team",
        "environment_id": "Forums_v2.1-homes",
        "created_at": "2026-01-01T00:00:00Z",
        "verifier_id": None,
        "verifier": {"verifier_id": "v", "key": "t1", "version": 3, "code": "def verify(env): 1"},
        "version": "v0.0.12",
        "data_id": "seed",
        "data_version": "v9",
        "env_variables": None,
        "metadata": None,
        "difficulty": "2",
    }
    task = read_row(row, 1)
    assert isinstance(task, TaskRow), task
    assert (task.env_key, task.env_version) == ("Forums_v2.1-homes", "v0.0.12")
    assert (task.data_key, task.data_version, task.difficulty) == ("seed", "v9", 2)
    assert task.verifier_code == "def verify(env): 1"
    assert read_row(json.loads(canonical_json(task)), 1) == task


def test_a_name_that_holds_nothing_gives_way_to_its_alias() -> None:
    assert read(key="", task_key="t2").key == "t2"
    assert read(env_version=None, version="v3").env_version == "v3"
    assert read(env_version="v2", version="v3").env_version == "v2"


def test_an_environment_may_carry_its_version() -> None:
    assert read(env_key="booking:v1").env_version == "v1"
    assert read(env_key="booking:v1", env_version="v1").env_key == "booking"
    assert read(env_key="booking:").env_version is None
    assert problem(env_key="booking:v1", env_version="v2") == (
        "row 7 (t1), field env_version: is 'v2', but env_key says 'v1': give one"
    )


def test_values_that_say_the_same_in_another_type_are_taken() -> None:
    row = read(
        version=3,
        difficulty=2.0,
        verifier={"code": "def verify(env): ...", "key": "k"},
        env_variables={"N": 3, "ON": True, "NOTE": None, "LIST": ["é"]},
    )
    assert (row.env_version, row.difficulty) == ("3", 2)
    assert row.verifier_code == "def verify(env): ..."
    assert row.env_variables == {"N": 3, "ON": True, "LIST": ["é"]}
    assert row.variable_texts == {"N": "3", "ON": "true", "LIST": '["é"]'}
    assert fingerprint(row) == fingerprint(read(env_variables=row.variable_texts))
    assert row_hash(row) != row_hash(read(env_variables=row.variable_texts))


def test_what_validation_and_minifleet_need_is_kept_in_the_metadata() -> None:
    calls = [{"name": "search", "arguments": {"q": "hotel"}}]
    row = read(tool_calls=calls, template="cheapest", metadata={"template": "own"})
    assert row.metadata == {"tool_calls": calls, "template": "own"}
    assert {"tool_calls", "template"} <= set(METADATA_FIELDS)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"key": None}, "row 7, field key: is missing: every task needs key or task_key"),
        ({"key": "a\nb"}, "row 7 (a\\nb), field key: must be printable text without spaces"),
        ({"key": 7}, "row 7, field key: must be text, not a number"),
        ({"prompt": " \n"}, "row 7 (t1), field prompt: must not be blank"),
        ({"prompt": "a\0"}, "row 7 (t1), field prompt: holds a NUL character"),
        ({"prompt": "\ud83d"}, "row 7 (t1), field prompt: holds half of a surrogate pair"),
        ({"prompt": ["a"]}, "row 7 (t1), field prompt: must be text, not a list"),
        ({"env_key": "a/b"}, "row 7 (t1), field env_key: 'a/b' must be letters, digits, '.', '_'"),
        ({"env_key": "book ing"}, "field env_key: 'book ing' must be letters"),
        ({"env_key": "1st"}, "field env_key: '1st' must be letters"),
        (
            {"env_key": None},
            "field env_key: is missing: every task needs env_key or env_id or environment_id",
        ),
        ({"env_version": {}}, "field env_version: must be text, not an object"),
        ({"env_variables": "{"}, "field env_variables: is text that is not JSON"),
        ({"env_variables": [1]}, "field env_variables: is a list, not an object"),
        (
            {"env_variables": {"A": math.nan}},
            "field env_variables: holds a number that is infinite",
        ),
        ({"env_variables": {"A": 2**63}}, "field env_variables: holds a whole number beyond 64"),
        ({"env_variables": {"A": "\ud800"}}, "field env_variables: holds half of a surrogate"),
        ({"difficulty": 4}, "field difficulty: 4 must be 1 (easy), 2 or 3 (hard)"),
        ({"difficulty": True}, "field difficulty: it is true or false, as YAML reads yes"),
        ({"difficulty": "4"}, "field difficulty: '4' must be 1 (easy)"),
        ({"difficulty": "hard"}, "field difficulty: 'hard' must be 1 (easy)"),
        ({"task_modality": "voice"}, "field task_modality: 'voice' must be one of tool_use, "),
        ({"metadata": {"a": math.inf}}, "field metadata: holds a number that is infinite"),
        ({"metadata": {"a": 2**63}}, "field metadata: holds a whole number beyond 64 bits"),
        ({"metadata": {"a": {1: 2}}}, "field metadata: has a name that is not text"),
        ({"metadata": {"a": {2}}}, "field metadata: holds a value of type set"),
        ({"metadata": [0] * 3}, "field metadata: is a list, not an object"),
        ({"verifier_func": 1}, "field verifier_code: must be text, not a number"),
    ],
)
def test_a_malformed_field_is_named_with_its_row(fields: dict[str, Any], sentence: str) -> None:
    assert sentence in problem(**fields)


@pytest.mark.parametrize("prompt", [None, "", " \n"])
def test_a_row_without_a_prompt_is_refused_or_dropped(prompt: str | None) -> None:
    assert problem(prompt=prompt).endswith(
        ", or leave out rows with an empty prompt by filters.empty_prompts: drop"
    )
    row = TASK | {"prompt": prompt, "difficulty": 2}
    assert read_row(row, 7, drops_empty_prompts=True) == PromptlessRow(
        key="t1", env_key="booking", task_modality="tool_use", difficulty=2
    )
    for other in ({"difficulty": 4}, {"key": ""}, {"env_key": 1}):
        found = read_row(row | other, 7, drops_empty_prompts=True)
        assert isinstance(found, RowProblem), "a row with another problem is not dropped unsaid"
    assert "empty_prompts" not in problem(prompt=7)
    assert read_row(TASK, 7, drops_empty_prompts=True) == read()


def test_a_row_that_is_no_object_says_so() -> None:
    found = read_row([1], 3)
    assert isinstance(found, RowProblem)
    assert found.sentence == "row 3: is a list, not an object: write each task as {…}"


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_a_number_too_long_for_python_to_write_is_a_problem_in_any_field(field: str) -> None:
    for value in (10**5000, {"A": 10**5000, "code": 10**5000}):
        found = read_row(TASK | {field: value}, 1)
        assert isinstance(found, RowProblem)
        assert found.field == field
        found.model_dump_json()


def test_metadata_may_be_nested_only_so_deep() -> None:
    nested: Any = "leaf"
    for _ in range(MAX_DEPTH - 1):
        nested = [nested]
    assert read(metadata={"a": nested}).metadata["a"] == nested
    assert "levels deep" in problem(metadata={"a": [nested]})


def test_the_canonical_form_is_sorted_utf8_without_spaces_and_without_what_is_absent() -> None:
    row = read(prompt="Büch é\u2028!", metadata={"b": 1.0, "a": [True, None]}, difficulty=1)
    assert (
        canonical_json(row)
        == (
            '{"difficulty":1,"env_key":"booking","key":"t1","metadata":{"a":[true,null],"b":1.0},'
            '"prompt":"Büch é\u2028!","task_modality":"tool_use"}'
        ).encode()
    )
    assert row_hash(row) == hashlib.sha256(canonical_json(row)).hexdigest()


def test_the_content_hash_is_over_the_sorted_lines_and_no_other_order() -> None:
    rows = [read(key=f"t{i}", prompt=f"Prompt {i}") for i in range(20)]
    lines = b"".join(canonical_json(r) + b"\n" for r in sorted(rows, key=lambda r: r.key))
    shuffled = random.Random(1).sample(rows, len(rows))
    assert content_hash(shuffled) == content_hash(rows) == hashlib.sha256(lines).hexdigest()
    assert content_hash(rows[1:]) != content_hash(rows)


def test_a_fingerprint_covers_what_is_asked_and_not_the_key() -> None:
    row = read(env_variables={"A": "1", "B": "2"})
    same = read(key="t2", env_version="v9", env_variables={"B": "2", "A": "1"}, difficulty=3)
    assert fingerprint(row) == fingerprint(same)
    others = [read(), read(prompt="Book."), read(env_key="zillow"), read(env_variables={"A": "1"})]
    assert len({fingerprint(each) for each in [row, *others]}) == 5


def test_reading_counts_problems_and_the_fields_it_leaves_out() -> None:
    reading = Reading()
    values = [TASK | {"team_id": 1}, 5, TASK | {"key": "t2", "team_id": 2, "x": None}]
    assert [row.key for row in reading.rows_of(values)] == ["t1", "t2"]
    assert reading.ignored_fields == {"team_id": 2, "x": 1}
    assert [found.row for found in reading.problems] == [2]
    many = Reading()
    assert list(many.rows_of([None] * (MAX_PROBLEMS + 5))) == []
    assert (many.num_problems, len(many.problems)) == (MAX_PROBLEMS + 5, MAX_PROBLEMS)


def test_no_object_makes_reading_raise() -> None:
    num_rows = 0
    for value in junk_values(seed=1):
        found = read_row(value, 1)
        found.model_dump_json()
        if isinstance(found, TaskRow):
            num_rows += 1
            assert read_row(json.loads(canonical_json(found)), 1) == found
    assert 0.1 * NUM_JUNK < num_rows < 0.9 * NUM_JUNK, "good and bad rows are both tried"


JSON_OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@fuzzed
@given(
    fields=st.dictionaries(st.sampled_from(sorted(FIELDS)), st.text(max_size=9) | JSON_OBJECTS),
    metadata=JSON_OBJECTS,
)
def test_a_row_that_was_read_is_read_again_from_its_canonical_form(
    fields: dict[str, Any], metadata: dict[str, Any]
) -> None:
    row = read_row(TASK | {"metadata": metadata} | fields, 1)
    row.model_dump_json()
    if isinstance(row, TaskRow):
        again = read_row(json.loads(canonical_json(row)), 1)
        assert again == row
        assert isinstance(again, TaskRow)
        assert row_hash(again) == row_hash(row)
