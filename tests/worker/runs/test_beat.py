"""Beat sends every task on time, whatever the clock does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, current_app

from worker.beat import SteadyScheduler

PERIOD_S = 2.0
TASKS = {"first", "second"}


class Clock:
    """The clock of one scheduler; `passed_s` is what no clock can change."""

    def __init__(self) -> None:
        self.set_by_s, self.passed_s = 0.0, 0.0
        self.begun = time.time()

    def time(self) -> float:
        return self.begun + self.passed_s + self.set_by_s

    def monotonic(self) -> float:
        return self.passed_s

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)


class Recording(SteadyScheduler):
    """Keeps what it would send to the broker."""

    def apply_async(self, entry: Any, *_: Any, **__: Any) -> None:
        self.reserve(entry)
        self.sent.add(entry.task)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made, before = Clock(), current_app._get_current_object()
    monkeypatch.setattr("worker.beat.time", made)
    yield made
    before.set_current()


def beat(folder: Path, clock: Clock) -> Recording:
    celery = Celery("beat", broker="memory://")  # the current one: stored entries belong to it
    celery.conf.beat_schedule = {
        name: {"task": name, "schedule": PERIOD_S} for name in sorted(TASKS)
    }
    celery.conf.timezone = "UTC"
    celery.now = clock.now
    made = Recording(app=celery, schedule_filename=str(folder / "schedule"))
    made.sent = set()
    return made


@pytest.fixture
def scheduler(tmp_path: Path, clock: Clock) -> Iterator[Recording]:
    made = beat(tmp_path, clock)
    yield made
    made.close()


def run_for(scheduler: Recording, clock: Clock, seconds: float) -> set[str]:
    """Tick for so long, and return what was sent."""
    scheduler.sent = set()
    end = clock.passed_s + seconds
    while clock.passed_s < end:
        scheduler.tick()
        clock.passed_s += 0.1
    return scheduler.sent


@pytest.mark.parametrize("hours", [1, -1])
def test_every_task_is_sent_within_a_period_after_the_clock_was_set(
    scheduler: Recording, clock: Clock, hours: int
) -> None:
    assert run_for(scheduler, clock, 1.5 * PERIOD_S) == TASKS
    clock.set_by_s = timedelta(hours=hours).total_seconds()
    assert run_for(scheduler, clock, 1.5 * PERIOD_S) == TASKS
    assert run_for(scheduler, clock, 1.5 * PERIOD_S) == TASKS


def test_one_that_starts_again_does_not_wait_for_the_clock_of_before(
    scheduler: Recording, tmp_path: Path, clock: Clock
) -> None:
    run_for(scheduler, clock, 1.5 * PERIOD_S)
    scheduler.close()
    clock.set_by_s = -3600.0
    again = beat(tmp_path, clock)
    assert run_for(again, clock, 1.5 * PERIOD_S) == TASKS
    again.close()
