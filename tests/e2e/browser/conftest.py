"""A stack and a Chromium for the tests that need the real ones; without them these skip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser.chromium import launched
from tests.e2e.browser.stack import OwnStack, started

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStack]:
    if os.environ.get("HILLCLIMB_E2E") != "1":
        pytest.skip("a whole stack, minutes long: `make e2e` runs it")
    with started(tmp_path_factory.mktemp("stack").resolve()) as running:
        yield running


# Not of the session: Playwright's loop would run in this thread under later asynchronous tests.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as chromium:
        yield chromium
