"""Ids sort by time, fit the contract's pattern, and do not repeat."""

import re
import time
from datetime import UTC, datetime

import pytest

from api.tables.ids import born_at, new_id
from hillclimb.spec.training.lineage import ResumedFrom


def test_an_id_fits_the_pattern_of_the_contract() -> None:
    assert ResumedFrom(run_id=new_id("run"), step=1, attempt=1)
    assert re.fullmatch(r"evt_[0-9a-z]{26}", new_id("evt"))


def test_ids_are_unique() -> None:
    assert len({new_id("run") for _ in range(10_000)}) == 10_000


def test_a_later_id_sorts_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    made = []
    for later in range(3):
        monkeypatch.setattr(time, "time_ns", lambda later=later: now + later * 1_000_000)
        made.append(new_id("run"))
    assert made == sorted(made)


def test_an_id_tells_when_it_was_made() -> None:
    before = datetime.now(UTC)
    born = born_at(new_id("dsv"))
    assert born is not None
    assert abs((born - before).total_seconds()) < 5


@pytest.mark.parametrize("other", ["", "dsv_", "dsv_1", "split-tables", "dsv_" + "u" * 26])
def test_what_is_no_id_has_no_birth(other: str) -> None:
    assert born_at(other) is None
