"""A browser that is signed in, and what its pages hold."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import httpx
import pytest

from api.tables import ApiKey
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.api.http.dashboard.stored import sign_in

__all__ = ["blobs", "served", "story", "story_url"]


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.browser() as browser:
        yield sign_in(served, browser)


def hidden(page: str, *names: str) -> dict[str, str]:
    """Return hidden fields of the first form that has them."""
    found = {name: re.search(rf'name="{name}" value="([^"]*)"', page) for name in names}
    return {name: html.unescape(match[1]) for name, match in found.items() if match}


def text_of(page: str) -> str:
    """Return a page's text as one line."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


def demote(story: Story, served: Served, *scopes: str) -> None:
    """Leave these scopes to the key of the browser."""
    with story.database.transaction() as session:
        session.get_one(ApiKey, f"key_{served.key[-8:]}").scopes = list(scopes)
