"""The table of cases by backends in docs/verified.md is what the suites run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.conformance.cases import CASES, Case
from tests.conformance.test_backends import QUICK
from tests.docs.test_verified import PAGE, rows

HEAD = ("runner", "clusters", "tinker", "slurm")


def cell(backend: str, case: Case) -> str:
    return "long" if case in QUICK.get(backend, ()) else "e2e"


def test_the_table_has_the_backends_in_its_head() -> None:
    section = PAGE.split("## Every backend\n")[1]
    head = next(line for line in section.splitlines() if line.startswith("|"))
    assert head.lower().replace(" ", "") == f"|case|{'|'.join(HEAD)}|"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_row_says_where_its_case_runs(case: Case) -> None:
    row = {name(each): each[1:] for each in rows("Every backend")}[case.__name__]
    assert row == [cell(backend, case) for backend in HEAD]


def test_no_row_is_of_a_case_that_is_not_there() -> None:
    assert names(rows("Every backend")) == {case.__name__ for case in CASES}


def names(table: Iterable[list[str]]) -> set[str]:
    return {name(row) for row in table}


def name(row: list[str]) -> str:
    """The case of a row, whose first cell ends with it in brackets: `... (`name`)`."""
    return row[0].rpartition("(`")[2].removesuffix("`)")
