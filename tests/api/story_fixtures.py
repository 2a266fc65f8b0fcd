"""Fixtures for tests that tell stories; a conftest imports the ones it wants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.serving import Served, serve
from tests.api.story import Story
from tests.migrated import Migrated
from trainer.stores.disk import DiskStore


@pytest.fixture
def story_url(emptied: Migrated) -> str:
    """Where the story is told."""
    return emptied.url


@pytest.fixture
def story(emptied: Migrated) -> Story:
    told = Story(emptied.database)
    told.prepare()
    return told


@pytest.fixture
def blobs(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path / "blobs")


@pytest.fixture
def served(story: Story, story_url: str, tmp_path: Path) -> Iterator[Served]:
    with serve(story_url, story.database, tmp_path / "blobs") as running:
        yield running
