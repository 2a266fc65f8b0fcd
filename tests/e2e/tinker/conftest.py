"""As in `tests/trainer/workers/tinker`."""

from __future__ import annotations

from tests.trainer.workers.tinker.server.leftovers import collect_what_the_sdk_leaves


def pytest_sessionfinish() -> None:
    """The warnings of what the SDK leaves open would end the tests with an error."""
    collect_what_the_sdk_leaves()
