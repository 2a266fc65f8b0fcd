"""`docs/site/offline.py` finds what a site lacks, and what it would load from elsewhere."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.docs.pages.named_commands import ROOT

check = runpy.run_path(str(ROOT / "docs" / "site" / "offline.py"))["check"]
PAGE = """<!doctype html><html><head><title>a</title>
<link rel="stylesheet" href="style.css"><link rel="next" href="b/">{head}</head>
<body><h1 id="top">a</h1><a href="#top">a</a> <a href="b/#end">b</a> <a href="https://a.example">c</a>
<a href="mailto:a@b.example">d</a><img src="data:image/gif;base64,R0lG">{body}</body></html>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two pages, a style sheet and an image."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<p id="end"><img src="../a%20b.svg">')
    (tmp_path / "a b.svg").write_text("<svg/>")
    (tmp_path / "style.css").write_text("@import 'more.css'; p { background: url('a b.svg') }")
    (tmp_path / "more.css").write_text("p { color: red }")
    write(tmp_path)
    return tmp_path


def write(site: Path, *, head: str = "", body: str = "") -> None:
    (site / "index.html").write_text(PAGE.format(head=head, body=body))


def test_a_whole_site_has_no_faults(site: Path) -> None:
    assert check(site) == (4, [])


@pytest.mark.parametrize(
    ("head", "body", "fault"),
    [
        ("", '<a href="gone.html">x</a>', "gone.html is not there"),
        ("", '<a href="b/#gone">x</a>', "b/#gone has no such anchor"),
        ("", '<a href="#gone">x</a>', "#gone has no such anchor"),
        ("", '<img src="gone.png">', "gone.png is not there"),
        ("", '<img srcset="gone.png 2x">', "gone.png is not there"),
        ("", '<script src="https://cdn.example/a.js"></script>', "loads https://cdn.example/a.js"),
        ("", '<img src="//cdn.example/a.png">', "loads //cdn.example/a.png"),
        ("", "<p style=\"background: url('http://a.example/b')\">", "loads http://a.example/b"),
        ('<link rel="stylesheet" href="https://a.example/b.css">', "", "loads https://a.example"),
        ('<link rel="preconnect" href="https://a.example">', "", "loads https://a.example"),
        ("<style>@import 'https://a.example/b.css';</style>", "", "loads https://a.example/b.css"),
    ],
)
def test_each_fault_is_one_line(site: Path, head: str, body: str, fault: str) -> None:
    write(site, head=head, body=body)
    _, faults = check(site)
    assert len(faults) == 1
    assert faults[0].startswith(f"index.html: {fault}")


def test_a_style_sheet_that_loads_from_elsewhere_is_noticed(site: Path) -> None:
    (site / "more.css").write_text("@font-face { src: url(https://fonts.example/a.woff2) }")
    _, faults = check(site)
    assert faults == ["more.css: loads https://fonts.example/a.woff2 from elsewhere"]
