"""The pictures of the docs: each is referenced and small, and those of pages come from a script."""

from __future__ import annotations

import re
from pathlib import Path

from docs.screenshots import PICTURES

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "docs" / "images"
MAX_KB = 150
REFERENCE = re.compile(r"!\[([^\]]+)\]\((?:docs/)?images/([^)]+)\)")
NOT_OF_PAGES = {"demo.svg", "experiment-learning-curves.png"}
NOT_OF_PAGES |= {"experiment-signal.png"}
"""The end of the demo in a terminal, and figures of a report."""


def references() -> list[tuple[str, str]]:
    """Words and file of every picture in README and docs."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [found for page in pages for found in REFERENCE.findall(page.read_text())]


def test_every_picture_is_referenced_and_every_reference_is_a_picture() -> None:
    assert {name for _, name in references()} == {each.name for each in IMAGES.iterdir()}


def test_no_picture_is_large() -> None:
    sizes = {each.name: each.stat().st_size / 1000 for each in IMAGES.iterdir()}
    assert {name: size for name, size in sizes.items() if size >= MAX_KB} == {}


def test_every_picture_of_a_page_is_one_that_the_script_takes() -> None:
    made = {f"{name}.png" for name in PICTURES}
    assert {each.name for each in IMAGES.iterdir()} - NOT_OF_PAGES == made
