"""The bell and the clock: a real Celery worker on a real Valkey."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from celery import Celery, signals

from api.queue import RECONCILE_TASK, CeleryTaskQueue
from api.runs.status import RunStatus
from hillclimb.stack.system.poll import wait_until
from tests.worker.run_simulation import RunSimulation
from worker.app import CLUSTER, PRICE, SWEEP, SWEEP_PERIOD_S, app
from worker.tasks import FAN_OUT

ROOT = Path(__file__).parents[2]
DEADLINE_S = 90.0
LIST_TASKS = """
from worker.app import app
import worker.tasks
assert app.conf.beat_scheduler == "worker.beat:SteadyScheduler"
for entry in app.conf.beat_schedule.values():
    assert entry["options"]["expires"] == entry["schedule"]
    assert entry["task"] in app.tasks, entry
print(*sorted(name for name in app.tasks if not name.startswith("celery.")))
"""


class CeleryWorker:
    """A worker process like the stack's."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.log = folder / "worker.log"
        self.environment = {**os.environ, **environment}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ("worker", "--concurrency", "1", "--without-gossip", "--without-mingle")
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "worker.app", *options],
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()


@pytest.fixture
def environment(database_url: str, redis_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "HILLCLIMB_BLOBS_URL": str(tmp_path / "blobs"),
        "HILLCLIMB_SECRET_KEY": "x" * 32,
    }


@pytest.fixture
def worker(tmp_path: Path, environment: dict[str, str]) -> Iterator[CeleryWorker]:
    made = CeleryWorker(tmp_path, environment)
    yield made
    made.kill()


def test_celery_finds_the_tasks_imported_without_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector_was_on: dict[str, bool] = {}
    monkeypatch.setattr(
        "worker.app.import_module", lambda name: collector_was_on.update({name: gc.isenabled()})
    )
    signals.import_modules.send(sender=app)  # as a worker and beat do at their start
    assert collector_was_on == {"worker.tasks": False}
    assert gc.isenabled()


def test_clock_sends_only_tasks_that_exist_and_they_expire(environment: dict[str, str]) -> None:
    said = subprocess.run(
        [sys.executable, "-c", LIST_TASKS],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.split() == sorted([RECONCILE_TASK, CLUSTER, PRICE, *SWEEP_PERIOD_S])


@pytest.mark.invariant("a task lost with its real worker is made up by the sweep of the next one")
def test_ring_is_answered_and_a_ring_lost_with_its_worker_is_made_up_by_the_sweep(
    sim: RunSimulation, worker: CeleryWorker, redis_url: str
) -> None:
    sim.now = datetime.now(UTC)
    sim.register(slots=2)
    task_queue = CeleryTaskQueue(redis_url)
    worker.start()
    with Celery(broker=redis_url) as clock:
        # A ring expires after ten seconds, in which a worker on a busy machine does not start.
        assert wait_until(lambda: bool(clock.control.ping(timeout=1.0)), deadline_s=DEADLINE_S)
    first = sim.submit("first")
    task_queue.enqueue([first])
    assert _offered(sim, first), worker.log.read_text()

    worker.kill()
    second = sim.submit("second")
    worker.start()
    with Celery(broker=redis_url) as clock:
        clock.send_task(SWEEP)
    assert _offered(sim, second), worker.log.read_text()
    task_queue.close()


def test_the_clock_overtakes_what_its_rounds_have_sent_for(redis_url: str) -> None:
    with Celery(broker=redis_url) as clock:
        clock.conf.task_default_queue = "order"
        for _ in range(3):
            clock.send_task(RECONCILE_TASK, args=("run_1", True), **FAN_OUT)
        clock.send_task(SWEEP)
        with clock.connection_for_read() as connection:
            queue = connection.SimpleQueue("order")
            got = [queue.get(timeout=5) for _ in range(4)]
            assert [each.headers["task"] for each in got] == [SWEEP, *(RECONCILE_TASK,) * 3]
            queue.close()


def _offered(sim: RunSimulation, run_id: str) -> bool:
    """Whether the worker offers the run to the runner, which sends heartbeats meanwhile.

    Without them its lease may end before the worker has started.
    """

    def offered() -> bool:
        sim.now = datetime.now(UTC)
        sim.heartbeat()
        return sim.status(run_id) is RunStatus.PROVISIONING

    return wait_until(offered, deadline_s=DEADLINE_S)
