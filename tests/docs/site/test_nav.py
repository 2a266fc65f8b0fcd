"""`docs/nav.yaml` lists every page once, and every page says what it is for and leads on."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from api.http.document.pages import FOLDER, MAX_ABOUT, NAV, DocumentationPage, pages, sections
from tests.docs.pages.named_commands import ROOT
from tests.docs.site.markdown import read_page

INDEX = FOLDER / "README.md"
SECTIONS = yaml.safe_load(NAV.read_text())


def links_of(path: Path) -> set[Path]:
    """The files of the documentation that a page links to, without itself."""
    links = (each.partition("#")[0] for each in read_page(path).links if "://" not in each)
    targets = {(path.parent / link).resolve() for link in links if link}
    return {each for each in targets if each.suffix == ".md"} - {path}


def test_every_page_is_in_the_navigation_exactly_once() -> None:
    names = [name for section in SECTIONS for name in section.get("pages", ())]
    there = [path for path in FOLDER.rglob("*.md") if path != INDEX]
    assert Counter(names) == Counter(
        path.relative_to(FOLDER).with_suffix("").as_posix() for path in there
    )
    assert list(pages()) == names


def test_the_other_pages_of_the_repository_are_in_it_too() -> None:
    names = [name for section in SECTIONS for name in section.get("checkout", ())]
    beside = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    there = {path.relative_to(ROOT).with_suffix("").as_posix() for path in beside}
    assert Counter(names) == Counter(there - {"README"})


def test_sections_go_from_learning_to_looking_up_and_understanding() -> None:
    kinds = [section.title.partition(":")[0] for section in sections()]
    assert list(dict.fromkeys(kinds)) == ["Tutorial", "How-to", "Reference", "Explanation"]


@pytest.mark.parametrize("page", pages().values(), ids=lambda page: page.name)
def test_a_page_begins_with_a_title_and_a_sentence(page: DocumentationPage) -> None:
    headings = read_page(FOLDER / f"{page.name}.md").headings
    levels = [level for level, _ in headings]
    assert levels[0] == 1
    assert levels.count(1) == 1, "a second title"
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert re.search(r"[\w`)][.:]?$", page.about), page.about
    assert 20 < len(page.about) < MAX_ABOUT, f"a first sentence of {len(page.about)} characters"


@pytest.mark.parametrize("page", pages(), ids=str)
def test_a_page_leads_on_and_is_reached_from_another_one(page: str) -> None:
    path = FOLDER / f"{page}.md"
    others = [FOLDER / f"{name}.md" for name in pages() if name != page]
    assert links_of(path), "it leads nowhere"
    assert any(path in links_of(other) for other in (*others, ROOT / "README.md"))
