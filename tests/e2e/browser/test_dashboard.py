"""Pages whose scripts draw, in a real browser: the list, the metrics, the way to the failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hillclimb.blobs.disk import DiskStore
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.api.http.dashboard.stored import store_trajectories
from tests.e2e.browser.signed_in import signed_in
from tests.e2e.browser.test_run_page import NEEDS_CHROMIUM, browse, visible_text

__all__ = ["blobs", "served", "story", "story_url"]

WAIT = "--virtual-time-budget=4000"
"""Chromium's own clock goes on (milliseconds) only while no request is under way.
Not for a page with a stream, whose request never ends."""
pytestmark = NEEDS_CHROMIUM


@pytest.fixture
def run_id(story: Story, blobs: DiskStore) -> str:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}))
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    story.push(run_id, story.evaluation(run_id, 40, {"booking": 0.8}))
    store_trajectories(blobs, run_id, [f"booking-{task}" for task in range(60)])
    return run_id


def visit(served: Served, profile: Path, path: str, *flags: str) -> str:
    with signed_in(served, path) as url:
        return browse(url, profile, *flags)


def test_the_list_fetches_verdicts(served: Served, run_id: str, tmp_path: Path) -> None:
    text = visible_text(visit(served, tmp_path / "profile", "/", WAIT))
    assert "20.0 → 80.0 %" in text
    assert "improved" in text
    assert "live" in text


def test_the_metrics_page_draws(served: Served, run_id: str, tmp_path: Path) -> None:
    dom = visit(served, tmp_path / "profile", f"/runs/{run_id}/metrics", WAIT)
    assert dom.count("<canvas") == 2
    assert "eval/*/pass_at_1" in visible_text(dom)


def test_a_figure_of_the_verdict_table_leads_to_the_failures_behind_it(
    served: Served, run_id: str, tmp_path: Path
) -> None:
    dom = visit(served, tmp_path / "first", f"/runs/{run_id}")
    links = re.findall(r'data-cell="now"><a href="([^"]+)"', dom)
    assert len(links) == 2
    with served.browser() as browser:
        browser.post("/login", data={"key": served.key, "next": "/"})
        page = browser.get(links[0].replace("&amp;", "&")).text
    assert page.count('class="mark" data-tone="bad"') == 12
