"""One stack for all cells of a round, its environment server, and the runs nobody disturbs.

`make chaos` sets HILLCLIMB_CHAOS; without it nothing here is collected. HILLCLIMB_CHAOS_ROUNDS says
how many times in a row, each with a stack of its own, and HILLCLIMB_CHAOS_RECORD which file gets
the result.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from hillclimb.stack.control import status
from hillclimb.stack.options import CODE_ROOT
from hillclimb.stack.system.ports import is_free
from tests.conformance.service import ENDED, Service, running_service
from tests.e2e.chaos.cells import Phase, RunKind
from tests.e2e.chaos.environments import KEY, EnvironmentServer
from tests.e2e.chaos.invariants import Reference
from tests.e2e.chaos.specs import spec_of
from tests.e2e.chaos.stage import PATIENCE_S, Stage
from tests.e2e.chaos.strains import Strains, strains

collect_ignore_glob = [] if os.environ.get("HILLCLIMB_CHAOS") == "1" else ["test_*.py"]
ROUNDS = int(os.environ.get("HILLCLIMB_CHAOS_ROUNDS", "1"))


@dataclass(slots=True)
class Round:
    """One stack, what was run on it, and how long each cell took (seconds)."""

    service: Service
    environments: EnvironmentServer
    number: int
    strains: Strains | None = None
    took_s: dict[str, float] = field(default_factory=dict)
    ended: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Status and number of events of each run when its cell had ended."""

    def submit(self, kind: RunKind, name: str) -> str:
        spec = spec_of(
            kind, name=name, fleet_url=self.environments.url, tiny_model=self.service.model
        )
        return self.service.submit(spec)

    def stage(self, kind: RunKind, name: str, phase: Phase = Phase.STARTING) -> Stage:
        """Submit a run, which gets as far as `phase` at most where that comes before its trainer.

        A queued one has another one before it that keeps the only slot. The runner that has to
        claim one is halted.
        """
        if phase in (Phase.PROVISIONING, Phase.CLAIMING):
            psutil.Process(self.service.pid("runner")).suspend()
        if phase is not Phase.QUEUED:
            return self._stage(self.submit(kind, name))
        first = self._stage(self.submit(kind, f"{name} blocker"))
        first.until_status("starting")
        first.await_trainer().suspend()
        run_id = self.submit(kind, name)
        return self._stage(run_id, blocker_id=first.run_id)

    def _stage(self, run_id: str, blocker_id: str = "") -> Stage:
        return Stage(
            self.service, self.environments, run_id, blocker_id=blocker_id, strains=self.strains
        )

    def close(self, stage: Stage) -> None:
        """Note how the runs of a cell ended; whatever became of it, the slot is free again."""
        for run_id in filter(None, (stage.run_id, stage.blocker_id)):
            own = self._stage(run_id)
            for process in own.live_trainers():
                process.resume()
            if own.run()["status"] not in ENDED:
                self.service.ask(run_id, "cancel")
                own.until_status(*ENDED)
            self.ended[run_id] = (own.run()["status"], len(self.service.events(run_id)))

    def check_absorbed(self) -> None:
        """Ended runs are as their cells left them, whatever was hit since."""
        now = {
            run_id: (self.service.run(run_id)["status"], len(self.service.events(run_id)))
            for run_id in self.ended
        }
        assert now == self.ended


RESULTS: list[Round] = []
"""Rounds whose stack left nothing behind."""
FAILURES: list[str] = []
"""Names of cells that failed, or whose round could not be set up or cleaned up."""


@pytest.fixture(scope="session", params=range(ROUNDS), ids=lambda number: f"round{number + 1}")
def round_(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Round]:
    folder = tmp_path_factory.mktemp("chaos").resolve()
    with a_round(folder, folder, request.param + 1) as made:
        yield made


@pytest.fixture(scope="session", params=range(ROUNDS), ids=lambda number: f"round{number + 1}")
def strained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Round]:
    """A round whose stack has a clock and a disk of its own, as far as the machine allows it."""
    folder = tmp_path_factory.mktemp("strained").resolve()
    with strains(folder) as found:
        state = found.disk.mounted if found.disk is not None else folder
        with a_round(folder, state, request.param + 1, found) as made:
            yield made


@contextmanager
def a_round(
    folder: Path, state: Path, number: int, found: Strains | None = None
) -> Iterator[Round]:
    """Start a stack whose state is below `state`; at the end nothing of it may be left."""
    variables = {
        "FLEET_API_KEY": KEY,
        "OMP_NUM_THREADS": "1",  # two spinning threads are slower beside other work
    }
    if found is not None and found.clock is not None:
        variables |= found.clock.variables()
    environments = EnvironmentServer(folder / "environments.log")
    before = set(left_in_memory())
    try:
        environments.start()
        with running_service(state, variables) as service:
            service.patience_s = PATIENCE_S
            this = Round(service, environments, number, strains=found)
            ports = status(service.options.state_dir).ports
            yield this
            this.check_absorbed()
            assert environments.num_running() == 0, "instances that nobody deletes"
    finally:
        environments.close()
    assert [name for name, port in ports.items() if not is_free(port)] == []
    assert set(left_in_memory()) - before == set()
    RESULTS.append(this)


@pytest.fixture(scope="session")
def reference(round_: Round) -> Reference:
    """The deterministic run, undisturbed."""
    return undisturbed(round_)


@pytest.fixture(scope="session")
def strained_reference(strained: Round) -> Reference:
    """The same on the other stack."""
    return undisturbed(strained)


def undisturbed(this: Round) -> Reference:
    stage = this.stage(RunKind.EXACT, "undisturbed")
    stage.until_status("succeeded")
    this.close(stage)
    return Reference.of(stage)


def left_in_memory() -> list[Path]:
    """Folders of Ray, vLLM and weights of processes that are gone, in /tmp and /dev/shm."""
    return list(nothing_left().folders_of_the_dead())


def nothing_left() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nothing_left", CODE_ROOT / ".ci/nothing_left.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        FAILURES.append(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the result of the rounds, where a file is named for it."""
    file = os.environ.get("HILLCLIMB_CHAOS_RECORD")
    if not file or not RESULTS:
        return
    green = [
        each
        for each in RESULTS
        if not any(f"[round{each.number}-" in nodeid for nodeid in FAILURES)
    ]
    cells = sorted({name for each in RESULTS for name in each.took_s})
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "num_cells": len(cells),
        "rounds": ROUNDS,
        "rounds_green": len(green),
        "seconds": {
            name: [round(each.took_s[name], 1) for each in RESULTS if name in each.took_s]
            for name in cells
        },
    }
    Path(file).write_text(json.dumps(result, indent=1) + "\n")
