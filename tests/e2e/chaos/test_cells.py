"""Each cell: a run gets into a phase, a part is hit, and everything has to hold (`make chaos`)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.chaos.blows import CLOCK_READ_S, strike
from tests.e2e.chaos.cells import CELLS, STRAINED, Cell, Part, Phase, RunKind
from tests.e2e.chaos.conftest import Round
from tests.e2e.chaos.invariants import Reference, Watch, check_equal, check_run
from tests.e2e.chaos.phases import REACH
from tests.e2e.chaos.stage import Stage
from tests.e2e.stream import Follower

pytestmark = [pytest.mark.stack, pytest.mark.chaos]


@pytest.fixture
def stage(round_: Round, cell: Cell) -> Iterator[Stage]:
    made = round_.stage(cell.run, cell.name, cell.phase)
    yield made
    round_.close(made)


@pytest.fixture
def strained_stage(strained: Round, cell: Cell) -> Iterator[Stage]:
    found = strained.strains
    assert found is not None
    needed = found.clock if cell.part is Part.CLOCK else found.disk
    if needed is None:
        pytest.skip(f"this machine lacks {'; '.join(found.missing)}")
    made = strained.stage(cell.run, cell.name, cell.phase)
    yield made
    strained.close(made)
    if found.clock is not None:
        found.clock.set_by(0)
        time.sleep(CLOCK_READ_S)


@pytest.mark.parametrize(
    "cell", [c for c in CELLS if c.part not in STRAINED], ids=lambda cell: cell.name
)
def test_cell(round_: Round, reference: Reference, cell: Cell, stage: Stage) -> None:
    attack(round_, reference, cell, stage)


@pytest.mark.parametrize(
    "cell", [c for c in CELLS if c.part in STRAINED], ids=lambda cell: cell.name
)
def test_strained_cell(
    strained: Round, strained_reference: Reference, cell: Cell, strained_stage: Stage
) -> None:
    attack(strained, strained_reference, cell, strained_stage)


def attack(this: Round, reference: Reference, cell: Cell, stage: Stage) -> None:
    """Get the run into the phase, hit the part, and check all that has to hold."""
    begun = time.monotonic()
    service = stage.service
    follower = Follower(str(service.http.base_url), key_of(stage), stage.run_id)
    follower.start()
    watch = Watch(stage)
    with watch.running():
        with REACH[cell.phase](stage):
            strike(stage, cell)
        status = see_through(stage, cell)
        stage.until(follower.ended)
    follower.close()
    assert watch.most == 1, "trainers of one run, at once"
    check_run(stage, follower, status=status)
    assert stage.run()["attempt"] == cell.num_attempts
    if cell.run in (RunKind.EXACT, RunKind.TRIED):
        check_equal(stage, reference, is_whole=status == "succeeded")
    this.took_s[cell.name] = time.monotonic() - begun


def see_through(stage: Stage, cell: Cell) -> str:
    """Wait for the end that the phase leads to, and return the status."""
    if cell.phase is Phase.CANCELLING:
        stage.until_status("cancelled")
        return "cancelled"
    if cell.phase is Phase.PAUSING or cell.part is Part.DISK:
        stage.until_status("paused")
        stage.service.ask(stage.run_id, "resume")
    stage.until_status("succeeded")
    return "succeeded"


def key_of(stage: Stage) -> str:
    return str(stage.service.http.headers["Authorization"]).removeprefix("Bearer ")
