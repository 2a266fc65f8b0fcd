"""The part about machines in a real browser: drawn by the server, kept fresh by the script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.api.clusters.cluster_story import rented
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.e2e.browser.chromium import (
    DESKTOP,
    NEEDS_PLAYWRIGHT,
    PHONE,
    new_context,
    serious_faults,
    sign_in,
    wider_than_window,
)
from tests.e2e.browser.signed_in import signed_in
from tests.e2e.browser.test_run_page import NEEDS_CHROMIUM, browse, visible_text

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["blobs", "served", "story", "story_url"]


@NEEDS_CHROMIUM
def test_a_rented_run_shows_machines_and_money(
    story: Story, served: Served, tmp_path: Path
) -> None:
    run_id = rented(story, hours=2.0, eta_s=3600.0, budget={"usd": 60.0})
    with signed_in(served, f"/runs/{run_id}") as url:
        text = visible_text(browse(url, tmp_path / "profile"))
    assert "nebius · eu-north1" in text
    assert "of $60.00" in text
    assert "no H100 left in us-west-1" in text
    assert "Its machines are being rented and set up." in text


@NEEDS_PLAYWRIGHT
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("window", [DESKTOP, PHONE])
def test_machines_and_clusters_have_no_serious_fault(
    story: Story, served: Served, browser: Browser, window: tuple[int, int], theme: str
) -> None:
    run_id = rented(story, hours=2.0, eta_s=3600.0, budget={"usd": 60.0})
    page = new_context(browser, url=served.url, window=window, theme=theme).new_page()
    sign_in(page, served.key)
    for path in (f"/runs/{run_id}", "/clusters"):
        page.goto(path)
        page.get_by_text("nebius").first.wait_for()
        # By the attribute: what one summary unfolds may cover the next.
        page.eval_on_selector_all(
            "main details", "all => all.forEach((each) => (each.open = true))"
        )
        assert (serious_faults(page), wider_than_window(page)) == ([], [])
    page.context.close()
