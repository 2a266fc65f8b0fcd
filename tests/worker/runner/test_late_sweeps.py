"""An ended attempt is swept again, also by the next runner, until nothing can come any more."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hillclimb.process.sweep import LATE_S
from worker.runner.late_sweeps import GIVE_UP_S, RETRY_S, EndedAttempt, LateSweeps


@dataclass
class Machine:
    """A clock, and a platform that sweeps succeed on or not."""

    folder: Path
    now: float = 1e9
    succeeds: bool = True
    swept: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    runners: list[LateSweeps] = field(default_factory=list)

    def runner(self) -> LateSweeps:
        """Start a runner, whose predecessor was killed."""

        def sweep(ended: EndedAttempt) -> bool:
            self.swept.append(ended.attempt_id)
            return self.succeeds

        made = LateSweeps(self.folder, sweep, self.forgotten.append, clock=lambda: self.now)
        made.load()
        self.runners.append(made)
        return made

    def later(self, seconds: float) -> int:
        """Let time pass; return how many sweeps the newest runner has made by then."""
        self.now += seconds
        runner, before = self.runners[-1], len(self.swept)
        runner.poll()
        wait([*runner._running.values()], timeout=10.0)
        runner.poll()
        return len(self.swept) - before


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "sweeps")
    yield made
    for runner in made.runners:
        runner.close()


def test_an_ended_attempt_is_swept_at_each_of_the_times_and_then_forgotten(
    machine: Machine,
) -> None:
    runner = machine.runner()
    runner.add("att_1", "run_1", 1)
    assert machine.later(0.0) == 0
    for earlier, due in zip((0.0, *LATE_S), LATE_S, strict=False):
        assert "att_1" in runner
        assert machine.later(due - earlier - 1.0) == 0
        assert machine.later(1.0) == 1
    assert "att_1" not in runner
    assert machine.forgotten == ["att_1"]
    assert list(machine.folder.iterdir()) == []
    assert machine.later(LATE_S[-1]) == 0


def test_the_next_runner_makes_the_sweeps_that_are_left(machine: Machine) -> None:
    machine.runner().add("att_1", "run_1", 1)
    assert machine.later(LATE_S[0]) == 1
    machine.runner()
    assert machine.later(LATE_S[-1]) == 1, "the second one, which fell into the time without one"
    assert machine.later(0.0) == 1
    assert machine.forgotten == ["att_1"]


def test_a_sweep_that_fails_is_repeated_for_as_long_as_instances_live(machine: Machine) -> None:
    machine.succeeds = False
    runner = machine.runner()
    runner.add("att_1", "run_1", 1)
    assert machine.later(LATE_S[0]) == 1
    assert machine.later(RETRY_S - 1.0) == 0
    assert machine.later(1.0) == 1
    machine.succeeds = True
    assert machine.later(RETRY_S) == 1
    assert "att_1" in runner
    machine.succeeds = False
    assert machine.later(GIVE_UP_S) == 1
    assert machine.forgotten == ["att_1"]


def test_a_clock_that_is_set_back_puts_no_sweep_off_for_years(machine: Machine) -> None:
    machine.runner().add("att_1", "run_1", 1)
    machine.now -= 1e8
    machine.runner()
    assert machine.later(0.0) == 0
    assert machine.later(LATE_S[0]) == 1


def test_an_entry_that_cannot_be_read_keeps_no_runner_from_starting(machine: Machine) -> None:
    machine.runner().add("att_1", "run_1", 1)
    (machine.folder / "att_2.json").write_text("{")
    assert "att_1" in machine.runner()
