"""Imports at the real application on loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.api.fixtures.serving import Served
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url
from tests.fixtures.skyrl import DUMP, RUN_NAME

__all__ = ["blobs", "served", "story", "story_url"]

Import = Callable[..., httpx.Response]


@pytest.fixture
def bring(served: Served) -> Import:
    """Import a dump, by default SkyRL's own, and return the response."""

    def post(content: bytes | None = None, *, key: str | None = None, **options: object) -> Any:
        params = {"source": RUN_NAME} | {name: str(value) for name, value in options.items()}
        body = DUMP.read_bytes() if content is None else content
        with served.client(key) as client:
            return client.post("/v1/imports/skyrl", params=params, content=body)

    return post


@pytest.fixture
def imported(bring: Import) -> str:
    """The run of SkyRL's own dump."""
    response = bring()
    assert response.status_code == 201, response.text
    return str(response.json()["id"])
