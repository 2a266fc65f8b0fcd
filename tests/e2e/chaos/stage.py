"""The run under attack: as its client sees it, and as its files and processes are."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from hillclimb.protocol.rundir import AttemptDir
from hillclimb.stack.system.poll import wait_until
from tests.conformance.service import ENDED, Service
from tests.e2e.chaos.environments import EnvironmentServer
from tests.e2e.chaos.strains import Strains

PATIENCE_S = float(os.environ.get("HILLCLIMB_CHAOS_PATIENCE_S", "150"))
"""How long anything is waited for; a machine with other work needs more."""
SLICE_S = 0.004
"""A creeping trainer works so long between two looks at its files (seconds)."""
MAY_BE_ANSWERED = (200, 503)
"""By an API whose database is away; anything else is a fault."""


@dataclass(slots=True)
class Stage:
    """One run of one cell."""

    service: Service
    environments: EnvironmentServer
    run_id: str
    blocker_id: str = ""
    """The run that has the only slot, while the one under attack is queued."""
    answers: Counter[int] = field(default_factory=Counter)
    strains: Strains | None = None
    """Clock and disk of a stack that has them."""

    # As a client sees it.

    def run(self, run_id: str = "") -> dict[str, Any]:
        """The run; waits for an API that is away."""
        last: list[dict[str, Any]] = []

        def is_there() -> bool:
            try:
                answer = self.service.http.get(f"/v1/runs/{run_id or self.run_id}", timeout=20.0)
            except httpx.HTTPError:
                return False
            self.answers[answer.status_code] += 1
            if answer.status_code == 200:
                last.append(answer.json())
            return bool(last)

        assert wait_until(is_there, deadline_s=PATIENCE_S), self.service.tails()
        return last[-1]

    def until(self, holds: Callable[[], object], *, patience_s: float = PATIENCE_S) -> None:
        if not wait_until(lambda: bool(holds()), deadline_s=patience_s):
            raise AssertionError(f"{self.run()}\n{self.tail()}\n{self.service.tails()}")

    def until_status(self, *statuses: str, run_id: str = "") -> dict[str, Any]:
        """Wait for one of these; a run that ended otherwise is reported at once."""
        last: list[dict[str, Any]] = []

        def is_so() -> bool:
            last.append(self.run(run_id))
            return last[-1]["status"] in (*statuses, *ENDED)

        self.until(is_so)
        assert last[-1]["status"] in statuses, f"{last[-1]}\n{self.tail()}"
        return last[-1]

    # As its files and processes are.

    def where(self, attempt: int = 0) -> AttemptDir:
        """Files of an attempt; 0 is the newest one that has a folder."""
        run_dir = self.service.options.state_dir / "runs" / self.run_id
        numbers = [int(each.name.split("-")[1]) for each in run_dir.glob("attempt-*")]
        return AttemptDir(run_dir, attempt or max(numbers, default=1))

    def written(self, attempt: int = 0) -> list[dict[str, Any]]:
        """Events of an attempt's own file; a killed trainer may leave half a line."""
        try:
            lines = self.where(attempt).events.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def is_all_sent(self) -> bool:
        """The API has every event that the newest attempt has written."""
        return bool(self.run()["attempts"][-1]["last_trainer_seq"] == len(self.written()))

    def steps(self) -> int:
        """Steps that the newest attempt has completed."""
        return sum(event["type"] == "step.completed" for event in self.written())

    def trainer(self) -> psutil.Process | None:
        """The live trainer of the newest attempt."""
        return next(iter(self.live_trainers()), None)

    def live_trainers(self) -> list[psutil.Process]:
        """Trainers of the run, which lead their sessions, of whatever attempt."""
        run_dir = str(self.where().run_dir)
        alive: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                words = process.cmdline()
                is_its = "trainer" in words and run_dir in words
                if is_its and os.getsid(process.pid) == process.pid:
                    alive.append(process)
        return alive

    def await_trainer(self) -> psutil.Process:
        self.until(self.trainer)
        process = self.trainer()
        assert process is not None
        self.service.trainers.add(process.pid)
        return process

    def tail(self) -> str:
        """The last words of the newest attempt's trainer."""
        log = self.where().log
        return log.read_text()[-3000:] if log.exists() else "no trainer has written a log"


@contextmanager
def frozen(*processes: psutil.Process) -> Iterator[None]:
    """Keep processes from doing anything; those that are gone by the end stay so."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it started, itself first."""
    return [process, *process.children(recursive=True)]


@contextmanager
def crept_to(
    process: psutil.Process,
    is_reached: Callable[[], bool],
    *,
    slice_s: float = SLICE_S,
    settles_s: float = 0.0,
) -> Iterator[None]:
    """Let a process work in short slices until the condition holds; then it stands still.

    So it is caught in a phase that lasts for less time than a test takes to look twice. What
    another process does of its own requests is over `settles_s` after each slice.
    """
    end = time.monotonic() + PATIENCE_S
    with frozen(process):
        while not is_reached():
            assert time.monotonic() < end, "the phase was never reached"
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(slice_s)
            os.kill(process.pid, signal.SIGSTOP)
            while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                time.sleep(SLICE_S / 4)
            assert process.status() != psutil.STATUS_ZOMBIE, "the trainer ended before the phase"
            time.sleep(settles_s)
        yield
