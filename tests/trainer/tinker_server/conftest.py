"""As in `tests/trainer/tinker`."""

from pathlib import Path

from tests.trainer.workers.tinker.conftest import (
    _without_telemetry,
    pytest_itemcollected,
    url,
)
from tests.trainer.workers.tinker.server.leftovers import collect_after_each_file_of

__all__ = ["_without_telemetry", "pytest_itemcollected", "url"]

pytest_runtest_protocol = collect_after_each_file_of(Path(__file__).parent)
