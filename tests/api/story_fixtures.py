"""Fixtures for tests that tell stories; a conftest imports the ones it wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.database import Database
from tests.api.serving import Served, serve
from tests.api.story import Story, migrate
from trainer.stores.disk import DiskStore


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


@pytest.fixture
def blobs(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path / "blobs")


@pytest.fixture
def served(story: Story, story_url: str, tmp_path: Path) -> Iterator[Served]:
    with serve(story_url, story.database, tmp_path / "blobs") as running:
        yield running
