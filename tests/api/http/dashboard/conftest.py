"""Stories about runs, told to the real application on loopback."""

from tests.api.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]
