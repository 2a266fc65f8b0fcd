"""The run page in a real browser: what a person sees while a run is under way."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path

import pytest

from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.e2e.browser.chromium import CHROMIUM
from tests.e2e.browser.signed_in import signed_in

__all__ = ["blobs", "served", "story", "story_url"]

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--hide-scrollbars",
    "--window-size=1280,900",
    "--timeout=8000",
]
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine: `make e2e` installs it"
)
pytestmark = NEEDS_CHROMIUM


def browse(url: str, profile: Path, *flags: str) -> str:
    """Open the page, let it run for a few seconds, and return its DOM."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *flags, "--dump-dom", url]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return finished.stdout


def visible_text(dom: str) -> str:
    without_code = re.sub(r"<(script|style|template)\b.*?</\1>", " ", dom, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", without_code)).split())


def test_a_running_run_shows_its_figures(story: Story, served: Served, tmp_path: Path) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2, "github": 0.95}))
    for step in (1, 2, 3):
        story.push(run_id, story.step(run_id, step, {"booking": 0.5, "github": 0.95}))
    with signed_in(served, f"/runs/{run_id}") as url:
        text = visible_text(browse(url, tmp_path / "profile"))
    assert "running" in text
    assert "3 / 40" in text
    assert "booking" in text
    assert "20.0 %" in text


def test_a_stranger_sees_the_login_form_only(served: Served, story: Story, tmp_path: Path) -> None:
    run_id = story.running()
    text = visible_text(browse(f"{served.url}/runs/{run_id}", tmp_path / "profile"))
    assert "API key" in text
    assert "booking" not in text
