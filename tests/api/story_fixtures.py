"""Fixtures for tests that tell stories; a conftest imports the ones it wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from api.database import Database
from tests.api.story import Story, migrate


@pytest.fixture
def story_url(make_database: Callable[..., str]) -> str:
    return make_database(template="story", prepare=migrate)


@pytest.fixture
def story(story_url: str) -> Iterator[Story]:
    database = Database(story_url)
    told = Story(database)
    told.prepare()
    yield told
    database.close()
