"""A file is read piece by piece, and means what `json.loads` says it means."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.datasets.format.rows import RowProblem
from hillclimb.datasets.read import scanner
from hillclimb.datasets.read.reading import Reading
from hillclimb.datasets.read.scanner import Parsed, scan
from tests.hillclimb.datasets.fuzz import NUM_JUNK, fuzzed, junk_files, pieces


def values(chunks: Iterable[bytes]) -> list[Any]:
    found = list(scan(chunks))
    assert all(isinstance(each, Parsed) for each in found), found
    assert [each.number for each in found if isinstance(each, Parsed)] == [
        *range(1, len(found) + 1)
    ]
    return [each.value for each in found if isinstance(each, Parsed)]


def problems(data: bytes) -> list[str]:
    return [each.sentence for each in scan([data]) if isinstance(each, RowProblem)]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=5,
)
OBJECTS = st.dictionaries(
    st.text(max_size=6).filter(lambda name: name != "tasks"), JSON_VALUES, max_size=5
)


@fuzzed
@given(
    rows=st.lists(JSON_VALUES, max_size=6),
    around=OBJECTS,
    size=st.integers(1, 64),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
    form=st.sampled_from(["list", "object", "object first", "object last"]),
)
def test_lists_and_objects_are_read_as_json_loads_reads_them(
    rows: list[Any],
    around: dict[str, Any],
    size: int,
    indent: int | None,
    ascii_only: bool,
    form: str,
) -> None:
    document: Any = {
        "list": rows,
        "object": {"tasks": rows},
        "object first": {"tasks": rows} | around,
        "object last": around | {"tasks": rows},
    }[form]
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    expected = json.loads(text)
    expected = expected if form == "list" else expected["tasks"]
    scanner._MIN_READ_CHARS, kept = 1, scanner._MIN_READ_CHARS
    try:
        assert values(cut(text.encode(), size)) == expected
    finally:
        scanner._MIN_READ_CHARS = kept


@fuzzed
@given(
    rows=st.lists(OBJECTS, min_size=1, max_size=6),
    size=st.integers(1, 64),
    blank=st.sampled_from(["\n", "\r\n", "\n\n", " \n"]),
)
def test_lines_are_read_one_by_one(rows: list[Any], size: int, blank: str) -> None:
    text = blank.join(json.dumps(row, ensure_ascii=False) for row in rows)
    assert values(cut(text.encode(), size)) == rows


def test_no_file_makes_reading_raise() -> None:
    rng = random.Random(2)
    num_rows = 0
    for data in junk_files(seed=2):
        reading = Reading()
        num_rows += len(list(reading.rows(pieces(data, rng))))
        for problem in reading.problems:
            problem.model_dump_json()
    assert num_rows > NUM_JUNK / 10


def test_a_file_means_the_same_in_pieces_and_as_a_whole() -> None:
    rng = random.Random(3)
    for data in itertools.islice(junk_files(seed=3), 1000):
        whole = Reading()
        parts = Reading()
        assert list(whole.rows([data])) == list(parts.rows(pieces(data, rng)))
        assert whole.num_problems == parts.num_problems
        assert whole.ignored_fields == parts.ignored_fields


def test_an_object_that_is_a_list_at_heart_may_be_empty() -> None:
    assert values([b" [ ] "]) == []
    assert values([b'{"tasks": [], "n": 0}']) == []
    assert values([b"\xef\xbb\xbf[1]"]) == [1]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "row 1: the file is empty: it must hold tasks"),
        (b"key,prompt\n", "row 1: the file does not start like JSON: it must be a list of tasks"),
        (b'[{"a": 1}', "row 1: is the last one, and the list does not end: the file is cut off"),
        (b"[1 2]", "row 1: is followed by '2' where a comma or the end of the list belongs"),
        (b"[1, nul]", "row 2: is not JSON: expecting value, near '[1, nul]'"),
        (b"[1] x", "row 1: is the last one, but 'x' follows the end of the tasks: remove it"),
        (b'{"tasks": {"a": 1}}', "row 1: `tasks` is not a list"),
        (b'{"tasks": [1], "tasks": [2]}', "row 1, field tasks: is given twice"),
        (b'{"a": 1, "a": 2}', "row 1, field a: is given twice: keep one of the two"),
        (b'{"a" 1}', "row 1: is not JSON: a name in double quotes and a colon belong here"),
        (b'{"a": 1', "row 1: is an object that does not end: the file is cut off or malformed"),
        (b'{"a": 1} 2\n', "row 1: is followed by '2' on the same line: start a new line"),
        (
            b"\x1f\x8b\x08",
            "row 1: it, or a row soon after it, is not UTF-8: save the file as UTF-8",
        ),
        (b"[" * 10**5, "row 1: is nested too deeply: flatten it"),
    ],
)
def test_a_broken_file_gets_a_sentence(data: bytes, sentence: str) -> None:
    found = problems(data)
    assert len(found) == 1
    assert found[0].startswith(sentence)


def test_a_row_that_names_a_field_twice_does_not_stop_a_list() -> None:
    found = list(scan([b'[{"a": 1}, {"a": {"b": 1, "b": 2}}, {"c": 3}]']))
    assert [each.number if isinstance(each, Parsed) else each.sentence for each in found] == [
        1,
        "row 2, field b: is given twice: keep one of the two",
        3,
    ]


def test_a_bad_line_costs_that_line_alone() -> None:
    data = b'{"a": 1}\n{"a": \n\n{"a": 2}\n{"a": 3} 4\n{"b": 1, "b": 1}\n' + b"[" * 9999 + b"\n5"
    found = list(scan([data]))
    assert [each.value for each in found if isinstance(each, Parsed)] == [{"a": 1}, {"a": 2}, 5]
    assert [each.row for each in found if isinstance(each, RowProblem)] == [2, 4, 5, 6]


@pytest.mark.parametrize("size", range(1, 6))
def test_a_number_is_read_to_its_end_wherever_the_file_is_cut(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "_MIN_READ_CHARS", 1)
    numbers = [0.25, 1.5e-7, -2e300, 120, 3e5, 0, -1]
    text = "[" + ", ".join(["0.25", "1.5e-7", "-2E+300", "120", "3e5", "0", "-1"]) + "]"
    assert values(cut(text.encode(), size)) == numbers


def test_whole_numbers_that_python_refuses_are_read_as_infinite() -> None:
    assert values([b"[" + b"9" * 5000 + b"]"]) == [float("inf")]


def test_a_row_that_never_ends_is_given_up_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scanner, "MAX_ROW_CHARS", 1000)
    read = 0

    def endless() -> Iterable[bytes]:
        nonlocal read
        yield b'[{"key": "'
        while True:
            read += 1
            yield b"x" * 100_000

    found = list(scan(endless()))
    assert [each.sentence for each in found if isinstance(each, RowProblem)] == [
        "row 1: is longer than 1,000 characters: the text that begins near"
        ' \'[{"key": "xxxxxxxxxxxxxxxxxxx\' does not end'
    ]
    assert read <= 2


@pytest.mark.parametrize(
    "form", ["[%s, %s]", '{"tasks": [%s, %s]}', "%s\n%s", '{"a": "b"}\n%s\n%s']
)
def test_a_row_that_is_too_long_is_refused_although_it_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(scanner, "MAX_ROW_CHARS", 1000)
    fits, too_long = (json.dumps({"key": "x" * n, "b": "y" * n}) for n in (400, 600))
    found = list(scan([(form % (fits, too_long)).encode()]))
    (problem,) = [each.sentence for each in found if isinstance(each, RowProblem)]
    assert problem.endswith(": is longer than 1,000 characters")
    first = list(scan([(form % (too_long, fits)).encode()]))
    assert any(isinstance(each, RowProblem) for each in first)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (b'{"key" "t7"}', "row 7: is not JSON: expecting ':' delimiter, near"),
        (b'{"key": "t7" "x": 1}', "row 7: is not JSON: expecting ',' delimiter, near"),
        (b'{"key": t7}', "row 7: is not JSON: expecting value, near"),
        (b'{"key": "t\\q"}', "row 7: is not JSON: invalid \\escape"),
    ],
)
def test_a_fault_far_from_the_end_is_found_where_it_is(row: bytes, sentence: str) -> None:
    """In a file of 40 MB the reading stops there, not 16 MiB later."""
    read = 0

    def file() -> Iterable[bytes]:
        nonlocal read
        yield b"[" + b'{"key": "t"}, ' * 6 + row
        for _ in range(400):
            read += 1
            yield b', {"key": "' + b"x" * 100_000 + b'"}'
        yield b"]"

    found = [each.sentence for each in scan(file()) if isinstance(each, RowProblem)]
    assert len(found) == 1
    assert found[0].startswith(sentence)
    assert read <= 2
