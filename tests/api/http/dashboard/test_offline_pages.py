"""Pages that work without the network, and tables that work without a mouse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.http.dashboard.run.log_text import plain_text
from api.http.dashboard.templating import HERE
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import log_segment, run_key
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.stored import sign_in

TEMPLATES = HERE / "templates"
TABLE = re.compile(r'<table class="(?:plain|runs)\b')
REGION = re.compile(r'<div class="wide" tabindex="0" role="region" aria-label="[^"]+">\s*$')
PATHS = [each for each in sorted(TEMPLATES.rglob("*.html")) if TABLE.search(each.read_text())]


def test_pages_and_scripts_have_the_minus_of_the_terminal() -> None:
    """`hillclimb.stats.intervals.points_text` decides it; of two kinds one cannot be searched."""
    own = [*TEMPLATES.rglob("*.html"), *(HERE / "static").glob("*.js")]
    assert [each.name for each in own if "\N{MINUS SIGN}" in each.read_text()] == []


def test_the_reference_has_every_operation_and_no_address_of_another_site(served: Served) -> None:
    with served.browser() as browser:
        page = browser.get("/docs")
        document = browser.get("/openapi.json").json()
    operations = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert page.status_code == 200
    assert [name for name in operations if f'id="{name}"' not in page.text] == []
    assert re.findall(r'(?:src|href)="(?:https?:)?//', page.text) == []
    assert "unsafe" not in page.headers["content-security-policy"]
    links = set(re.findall(r'href="#(schema-[^"]+)"', page.text))
    assert links
    assert [link for link in links if f'id="{link}"' not in page.text] == []


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\x1b[36m(EngineWorker pid=7)\x1b[0m ready", "(EngineWorker pid=7) ready"),
        ("\x1b[1;31mred\x1b[m \x1b]0;title\x07x\x1b]8;;http://a\x1b\\link", "red xlink"),
        ("10 %\r50 %\r100 %\nnext", "100 %\nnext"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("cut at the end \x1b[3", "cut at the end "),
        ("nul\x00 bell\x07 tab\t", "nul bell tab\t"),
        ("ä → ✓", "ä → ✓"),
    ],
)
def test_a_log_shows_no_escape_sequence(raw: str, text: str) -> None:
    assert plain_text(raw) == text


def test_the_log_page_shows_plain_text(story: Story, served: Served, blobs: DiskStore) -> None:
    run_id = story.running()
    key = run_key(run_id, log_segment(1, 1))
    blobs.put(key, b"\x1b[36m(EngineWorker pid=7)\x1b[0m <b>ready</b>\n")
    with served.browser() as browser:
        page = sign_in(served, browser).get(f"/runs/{run_id}/log").text
    assert "(EngineWorker pid=7) &lt;b&gt;ready&lt;/b&gt;" in page
    assert "\x1b" not in page


def test_the_sign_in_form_names_what_really_makes_a_link(served: Served) -> None:
    with served.browser() as browser:
        page = browser.get("/login").text
    assert "hillclimb watch" not in page
    assert "/v1/session-codes" in page


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.relative_to(TEMPLATES).as_posix())
def test_every_wide_table_is_in_a_named_region_that_takes_the_focus(path: Path) -> None:
    text = path.read_text()
    before = [text[: match.start()] for match in TABLE.finditer(text)]
    assert [each[-120:] for each in before if not REGION.search(each)] == []
