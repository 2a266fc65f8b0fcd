"""Stories about runs on a migrated database of their own."""

from tests.api.fixtures.story_fixtures import story, story_url

__all__ = ["story", "story_url"]
