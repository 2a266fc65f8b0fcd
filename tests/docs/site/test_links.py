"""Every link of a page leads somewhere, and no word of it is hidden where GitHub shows it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from tests.docs.pages.named_commands import ROOT
from tests.docs.site.markdown import read_page


def markdown_files() -> list[Path]:
    """Every page that git tracks or would add."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", "*.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for line in sorted(set(done.stdout.split())) if (path := ROOT / line).is_file()]


def broken_links(page: Path) -> Iterator[str]:
    """Yield the links of a page within the repository that lead nowhere."""
    for link in read_page(page).links:
        address, anchor = urldefrag(link)
        if urlsplit(link).scheme:
            continue
        target = page.parent / unquote(address) if address else page
        is_missing = not target.exists()
        if is_missing or (anchor and unquote(anchor) not in read_page(target).anchors):
            yield link


@pytest.mark.parametrize("page", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_word_of_a_page_reads_as_a_tag(page: Path) -> None:
    assert read_page(page).tags == (), "GitHub leaves these out: write them as code"


def test_links_that_lead_nowhere_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# There\n\n## When `a` dies, [b](there.md)\n\n## There\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n[1](there.md#when-a-dies-b) [2](#page) [3](there.md#there-1) [4](https://a.b/c)\n"
        "[5](gone.md) [6](there.md#gone) [7](#gone) ![8](gone.png)\n\n"
        "```\n[9](in-code.md)\n```\n"
    )
    assert list(broken_links(page)) == ["gone.md", "there.md#gone", "#gone", "gone.png"]
