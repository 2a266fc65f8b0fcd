"""As in `tests/trainer/tinker`."""

from tests.trainer.tinker.conftest import (
    _nothing_is_left_to_collect_for_others,
    pytest_itemcollected,
    pytest_sessionfinish,
    url,
)

__all__ = [
    "_nothing_is_left_to_collect_for_others",
    "pytest_itemcollected",
    "pytest_sessionfinish",
    "url",
]
