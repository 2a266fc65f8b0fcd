"""Stories on a migrated database of their own, and over the application on loopback."""

from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]
