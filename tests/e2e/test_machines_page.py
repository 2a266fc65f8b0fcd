"""The part about machines in a real browser: drawn by the server, kept fresh by the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.clusters.cluster_story import rented
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.e2e.signed_in import signed_in
from tests.e2e.test_run_page import CHROMIUM, browse, visible_text

__all__ = ["blobs", "served", "story", "story_url"]

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine: `make e2e` installs it"
)


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
