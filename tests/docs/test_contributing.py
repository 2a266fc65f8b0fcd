"""CONTRIBUTING.md leads to the files that something of the same kind touches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
CLASS_OF = {"curriculum.reweighted": "CurriculumReweighted", "guard_trips": "GuardTrip"}
GENERAL = (
    "hillclimb/environment/base.py",
    "trainer/jobs/train/metrics.py",
    "tests/trainer/jobs/train/test_metrics_page.py",
    "api/tables/database.py",
    "tests/api/tables/test_database.py",
)
"""Ports and checks of all that is of a kind: they name none of it."""
_PATH = re.compile(r"`([\w./-]+/[\w.-]+)`(, only if)?")


def sections() -> Iterator[tuple[str, str]]:
    """Each section's example with its text."""
    for section in PAGE.split("\n### ")[1:]:
        head, _, text = section.partition("\n")
        if example := re.search(r"\(`([^`]+)`\)", head):
            yield example[1], text.partition("\n## ")[0]


def steps() -> list[tuple[str, str]]:
    """Each example with each path that its list names; without those for special cases."""
    return [(example, path) for example, path, condition in paths() if not condition]


def paths() -> list[tuple[str, str, str]]:
    """Each example with each path of its list, and `, only if` where that follows it."""
    return [
        (example, path, condition)
        for example, text in sections()
        for line in re.findall(r"^\d+\. .*$", text, re.M)
        for path, condition in _PATH.findall(line)
        if path != example
    ]


def test_every_section_has_an_example_and_steps() -> None:
    headings = re.findall(r"^### .*$", PAGE, re.M)
    assert len(headings) == len(dict(sections())) >= 8
    assert {example for example, _ in steps()} == dict(sections()).keys()


def test_every_section_leads_to_a_test() -> None:
    tested = {example for example, path in steps() if path.startswith("tests/")}
    assert tested == dict(sections()).keys()


def test_files_of_special_cases_are_there_too() -> None:
    special = [path for _, path, condition in paths() if condition]
    assert len(special) >= 5
    assert all((ROOT / path).is_file() for path in special)


@pytest.mark.parametrize(("example", "path"), steps(), ids=lambda value: value)
def test_the_example_is_found_where_the_page_leads(example: str, path: str) -> None:
    file = ROOT / path
    assert file.is_file()
    names = {example, CLASS_OF.get(example, example)}
    is_named = example in path or any(name in file.read_text() for name in names)
    assert path in GENERAL or is_named, f"{path} does not mention {example}"
