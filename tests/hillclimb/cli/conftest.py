"""The command line against the real application on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hillclimb.cli.commands import main
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story_fixtures import blobs, served, story, story_url

__all__ = ["blobs", "served", "story", "story_url"]

Invoke = Callable[..., Result]


@pytest.fixture
def hc(served: Served, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run `hillclimb ARGS` as the owner of the story's project."""
    monkeypatch.setenv("HILLCLIMB_API_URL", served.url)
    monkeypatch.setenv("HILLCLIMB_API_KEY", served.key)

    def invoke(*args: str) -> Result:
        return CliRunner(mix_stderr=False).invoke(main, [*args])

    return invoke


def from_json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
