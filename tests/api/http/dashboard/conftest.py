"""Stories about runs, told to the real application on loopback."""

from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]
