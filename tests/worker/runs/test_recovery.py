"""Runner, API, driver and trainer as they really meet; each is killed in turn.

Real uvicorn, real PostgreSQL, a real runner process and trainers that are real processes; the
driver is called by the test where the worker would.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from api.notices.deliver import Delivery
from api.runs import store
from api.runs.journal import utc_now
from api.runs.status import TERMINAL, AttemptState, RunStatus
from api.scheduling import attempts
from api.scheduling.attempts import AttemptEnd
from api.tables import Attempt, Run, RunEvent, Runner
from api.tables.database import Database
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import EVENTS
from hillclimb.protocol.rundir import AttemptDir, ExitRecord
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.ports import find_free
from tests.fixtures.migrated import migrate
from tests.worker.runner.bench import Bench, gone
from worker.context import WorkerContext
from worker.runs import driver, relay

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
KEY = "hck_" + "u" * 40
RUNNER_TOKEN = "hcr_" + "r" * 40
STEPS = 6


@dataclass(slots=True, kw_only=True)
class Api:
    """The API as a process of its own, always on the same port."""

    environment: dict[str, str]
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None
    http: httpx.Client = field(init=False)
    unready: str = ""

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        self.http = httpx.Client(base_url=self.url, headers=headers, trust_env=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        place = ("--host", "127.0.0.1", "--port", str(self.port))
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "api.app:create_app", "--factory", *place],
                cwd=ROOT,
                env={**os.environ, **self.environment, "HILLCLIMB_API_URL": self.url},
                stdout=output,
                stderr=output,
            )
        assert wait_until(self._answers, deadline_s=30), self.unready + self.log.read_text()[-2000:]

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def get(self, path: str) -> dict[str, Any]:
        answer = self.http.get(path)
        answer.raise_for_status()
        body: dict[str, Any] = answer.json()
        return body

    def submit(self) -> str:
        spec = {
            "name": "recovery",
            "data": {"env_keys": ["booking"]},
            "schedule": {"total_steps": STEPS, "train_batch_size": 1, "mini_batch_size": 1},
            "checkpoints": {"interval": 1},
        }
        answer = self.http.post("/v1/runs", json=spec)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def _answers(self) -> bool:
        try:
            answer = self.http.get("/v1/health/ready")
        except httpx.HTTPError:
            return False
        self.unready = answer.text
        return answer.is_success


@dataclass(slots=True, kw_only=True)
class Whole:
    """The context together."""

    api: Api
    bench: Bench
    context: WorkerContext
    run_id: str = ""

    def until(self, condition: Callable[[], bool], *, deadline_s: float = 60.0) -> None:
        """Drive the run as the worker would, until the condition holds."""

        def driven() -> bool:
            driver.reconcile(self.context, self.run_id)
            return condition()

        said = self.bench.folder / "runner.log"
        if not wait_until(driven, deadline_s=deadline_s):
            raise AssertionError(f"{said.read_text()}\n{self.api.log.read_text()[-3000:]}")

    def begin(self, *, hold: int) -> Path:
        """A run whose trainer waits before step `hold`; returns the gate to remove."""
        gate = self.bench.hold(hold)
        self.run_id = self.api.submit()
        self.until(lambda: self.step() == hold - 1)
        return gate

    def where(self, attempt: int = 1) -> AttemptDir:
        return self.bench.attempt_dir(self.run_id, attempt)

    def step(self) -> int:
        return int(self.run()["progress"]["step"])

    def run(self) -> dict[str, Any]:
        return self.api.get(f"/v1/runs/{self.run_id}")

    def succeeded(self) -> bool:
        return bool(self.run()["status"] == "succeeded")

    def events(self) -> list[RunEvent]:
        query = select(RunEvent).where(RunEvent.run_id == self.run_id).order_by(RunEvent.seq)
        with self.context.database.transaction() as session:
            return list(session.scalars(query))

    def check_events(self) -> None:
        """Gap-free, and every line that the trainers wrote is there once, in order."""
        events = self.events()
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        for attempt in range(1, int(self.run()["attempt"]) + 1):
            lines = self.where(attempt).events.read_bytes().splitlines()
            written = [event.trainer_seq for event in map(EVENTS.validate_json, lines)]
            mine = [event for event in events if event.attempt == attempt]
            assert [e.trainer_seq for e in mine if e.trainer_seq is not None] == written


@pytest.fixture(scope="module")
def api(
    make_database: Callable[..., str], redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("api")
    environment = {
        "DATABASE_URL": make_database(template="worker", prepare=migrate),
        "REDIS_URL": redis_url,
        "HILLCLIMB_BLOBS_URL": str(folder / "blobs"),
        "HILLCLIMB_SECRET_KEY": "s" * 40,
        "HILLCLIMB_BOOTSTRAP_KEY": KEY,
        "HILLCLIMB_RUNNER_TOKEN": RUNNER_TOKEN,
    }
    made = Api(environment=environment, port=find_free(), log=folder / "api.log")
    try:
        made.start()
        yield made
    finally:
        made.kill()
        made.http.close()


@pytest.fixture
def context(api: Api) -> Iterator[WorkerContext]:
    database = Database(api.environment["DATABASE_URL"])
    yield WorkerContext(
        database=database,
        store=DiskStore(Path(api.environment["HILLCLIMB_BLOBS_URL"])),
        owner="the-test",
        delivery=Delivery(database=database, slack=None, public_url=api.url),
    )
    database.close()


@pytest.fixture
def whole(api: Api, context: WorkerContext, tmp_path: Path) -> Iterator[Whole]:
    bench = Bench(folder=tmp_path, url=api.url, token=RUNNER_TOKEN)
    bench.environment = {
        "HILLCLIMB_RUNNER_NAME": tmp_path.name,
        "HILLCLIMB_BLOBS_URL": api.environment["HILLCLIMB_BLOBS_URL"],
    }
    bench.prepare()
    try:
        bench.start()
        yield Whole(api=api, bench=bench, context=context)
    finally:
        bench.clean()
        _end_everything(context)


def _end_everything(context: WorkerContext) -> None:
    """Leave no run that would come before the next test's."""
    with context.database.transaction() as session:
        gone_by = datetime(2020, 1, 1, tzinfo=UTC)
        session.execute(update(Runner).values(lease_until=gone_by))
        session.execute(update(Attempt).values(state=AttemptState.ENDED.value))
        left = update(Run).where(Run.status.not_in([status.value for status in TERMINAL]))
        session.execute(left.values(status=RunStatus.FAILED.value, due_at=None))


def test_killed_trainer_resumes_as_the_next_attempt_from_its_last_checkpoint(
    whole: Whole,
) -> None:
    gate = whole.begin(hold=4)
    os.kill(whole.bench.trainer(whole.where()).pid, signal.SIGKILL)
    gate.unlink()
    whole.until(whole.succeeded)
    assert whole.run()["attempt"] == 2
    resumed = [e.data for e in whole.events() if e.type == "trainer.started"]
    assert [data["resumed_from_step"] for data in resumed] == [None, 3]
    assert [e.data["exit_code"] for e in whole.events() if e.type == "attempt.ended"] == [-9, 0]
    whole.check_events()


def test_killed_trainers_unsent_tail_is_not_lost(whole: Whole) -> None:
    gate = whole.begin(hold=3)
    (whole.bench.gates / "mute").touch()
    second = whole.bench.hold(5)
    gate.unlink()
    trainer = whole.bench.trainer(whole.where())
    whole.bench.until(lambda: whole.bench.num_lines(whole.where()) == 9)
    assert whole.step() == 2
    os.kill(trainer.pid, signal.SIGKILL)
    (whole.bench.gates / "mute").unlink()
    second.unlink()
    whole.until(whole.succeeded)
    resumed = [e.data for e in whole.events() if e.type == "trainer.started"]
    assert [data["resumed_from_step"] for data in resumed] == [None, 4]
    whole.check_events()


def test_killed_runner_adopts_its_trainer_and_the_attempt_goes_on(whole: Whole) -> None:
    gate = whole.begin(hold=4)
    before = whole.bench.trainer(whole.where())
    whole.bench.kill_runner()
    whole.bench.start()
    gate.unlink()
    whole.until(whole.succeeded)
    assert whole.run()["attempt"] == 1
    assert whole.bench.trainer(whole.where()) == before
    whole.check_events()


def test_killed_runner_reports_the_trainer_that_died_meanwhile(whole: Whole) -> None:
    gate = whole.begin(hold=4)
    trainer = whole.bench.trainer(whole.where())
    whole.bench.kill_runner()
    os.kill(trainer.pid, signal.SIGKILL)
    gate.unlink()
    whole.bench.start()
    whole.until(whole.succeeded)
    assert whole.run()["attempt"] == 2
    whole.check_events()


def test_killed_api_costs_nothing_and_the_end_arrives_when_it_is_back(whole: Whole) -> None:
    gate = whole.begin(hold=4)
    whole.api.kill()
    gate.unlink()
    whole.bench.until(whole.where().exit.exists)
    whole.api.start()
    whole.until(whole.succeeded)
    assert whole.run()["attempt"] == 1
    whole.check_events()


def test_trainer_that_cannot_push_is_followed_through_the_blob_store(whole: Whole) -> None:
    (whole.bench.gates / "mute").touch()
    gate = whole.bench.hold(3)
    whole.run_id = whole.api.submit()
    whole.until(lambda: whole.bench.num_lines(whole.where()) == 5)
    lines = whole.where().events.read_bytes()
    whole.context.store.put(f"runs/{whole.run_id}/attempt-1/events/000001.jsonl", lines)
    relay.sweep(whole.context, now=utc_now() + timedelta(seconds=relay.TRAINER_SILENCE_S))
    assert whole.step() == 2
    gate.unlink()
    whole.until(whole.succeeded)
    whole.check_events()


def test_zombies_push_is_refused_and_it_leaves(whole: Whole) -> None:
    gate = whole.begin(hold=4)
    (whole.bench.gates / "mute").touch()
    zombie = whole.bench.trainer(whole.where())
    whole.bench.kill_runner()
    with whole.context.database.transaction() as session:
        run = store.lock_run(session, whole.run_id)
        attempt = store.newest_attempt(session, run)
        assert attempt is not None
        end = AttemptEnd(reason=ReasonCode.RUNNER_LOST, message="declared lost by the test")
        attempts.end_attempt(session, run, attempt, end, now=utc_now())
    num_before = len(whole.events())
    (whole.bench.gates / "mute").unlink()
    gate.unlink()
    assert wait_until(gone(zombie), deadline_s=20)
    assert ExitRecord.model_validate_json(whole.where().exit.read_bytes()).reason == (
        ReasonCode.ATTEMPT_SUPERSEDED
    )
    assert len(whole.events()) == num_before
    whole.bench.start()
    whole.until(whole.succeeded)
    assert whole.run()["attempt"] == 2
    assert {e.attempt for e in whole.events() if e.seq > num_before and e.trainer_seq} == {2}


def test_zombie_that_stays_silent_is_killed_by_its_runner(whole: Whole) -> None:
    whole.begin(hold=4)
    zombie = whole.bench.trainer(whole.where())
    with whole.context.database.transaction() as session:
        run = store.lock_run(session, whole.run_id)
        attempt = store.newest_attempt(session, run)
        assert attempt is not None
        end = AttemptEnd(reason=ReasonCode.RUNNER_LOST, message="declared lost by the test")
        attempts.end_attempt(session, run, attempt, end, now=utc_now())
    whole.bench.until(gone(zombie))
    assert gone(zombie)()
    assert not whole.where().exit.exists(), "it had no time to leave by itself"


def test_stopped_runner_and_a_new_one_go_on_from_the_checkpoint_of_the_stop(
    whole: Whole,
) -> None:
    gate = whole.begin(hold=4)
    assert whole.bench.stop_runner() == 0
    assert not whole.bench.leftovers()
    whole.until(lambda: bool(whole.run()["status"] == "recovering"))
    gate.unlink()
    whole.bench.start()
    whole.until(whole.succeeded)
    run = whole.run()
    assert run["attempt"] == 2
    whole.check_events()


def test_cancelled_run_checkpoints_and_ends(whole: Whole) -> None:
    whole.begin(hold=4)
    assert whole.api.http.post(f"/v1/runs/{whole.run_id}/cancel").is_success
    whole.until(lambda: bool(whole.run()["status"] == "cancelled"))
    assert whole.events()[-2].type == "attempt.ended"
    whole.until(lambda: not whole.bench.leftovers())
    whole.check_events()
