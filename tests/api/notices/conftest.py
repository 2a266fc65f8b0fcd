"""Stories, and a fake Slack to tell them to."""

from collections.abc import Iterator

import pytest

from tests.api.fixtures.story_fixtures import story, story_url
from tests.fixtures.fake_slack import FakeSlack, run_fake_slack

__all__ = ["story", "story_url"]


@pytest.fixture
def fake_slack() -> Iterator[FakeSlack]:
    with run_fake_slack() as slack:
        yield slack
