"""Ids sort by time, fit the contract's pattern, and do not repeat."""

import re
import time

import pytest

from api.ids import new_id
from trainer.contract.sections import ResumedFrom


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
