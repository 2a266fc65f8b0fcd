"""Each cell: a run gets into a phase, a part is hit, and everything has to hold (`make chaos`)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e.chaos.blows import strike
from tests.e2e.chaos.cells import CELLS, Cell, Phase, RunKind
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


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_cell(round_: Round, reference: Reference, cell: Cell, stage: Stage) -> None:
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
    round_.took_s[cell.name] = time.monotonic() - begun


def see_through(stage: Stage, cell: Cell) -> str:
    """Wait for the end that the phase leads to, and return the status."""
    if cell.phase is Phase.CANCELLING:
        stage.until_status("cancelled")
        return "cancelled"
    if cell.phase is Phase.PAUSING:
        stage.until_status("paused")
        stage.service.ask(stage.run_id, "resume")
    stage.until_status("succeeded")
    return "succeeded"


def key_of(stage: Stage) -> str:
    return str(stage.service.http.headers["Authorization"]).removeprefix("Bearer ")
