"""CONTRIBUTING.md leads to the files that something of the same kind touches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
CLASS_OF = {"curriculum.reweighted": "CurriculumReweighted"}


def sections() -> Iterator[tuple[str, str]]:
    """Each section's example with its text."""
    for section in PAGE.split("\n### ")[1:]:
        head, _, text = section.partition("\n")
        if example := re.search(r"\(`([^`]+)`\)", head):
            yield example[1], text.partition("\n## ")[0]


def steps() -> list[tuple[str, str]]:
    """Each example with each path that its list names."""
    found = []
    for example, text in sections():
        for line in re.findall(r"^\d+\. .*$", text, re.M):
            if "only" not in line:
                found += [(example, path) for path in re.findall(r"`([\w./-]+/[\w.-]+)`", line)]
    return [(example, path) for example, path in found if path != example]


def test_every_section_has_an_example_and_steps() -> None:
    assert len(dict(sections())) >= 7
    assert {example for example, _ in steps()} == dict(sections()).keys()


@pytest.mark.parametrize(("example", "path"), steps(), ids=lambda value: value)
def test_the_example_is_found_where_the_page_leads(example: str, path: str) -> None:
    file = ROOT / path
    assert file.is_file()
    names = {example, CLASS_OF.get(example, example)}
    # Ports and generic tables name no kind, and files of one kind have it in their path.
    is_general = path in ("hillclimb/environment/base.py", "trainer/jobs/train/metrics.py")
    is_measure = path == "tests/trainer/jobs/train/test_metrics_page.py"
    assert (
        is_general or is_measure or example in path or any(n in file.read_text() for n in names)
    ), f"{path} does not mention {example}"
