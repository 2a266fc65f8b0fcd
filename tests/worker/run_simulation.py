"""Runs, runners and trainers acted out on the database, with a clock of their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from api.admission.submit import submit
from api.runs import store
from api.runs.status import RunStatus
from api.scheduling import control, runners
from api.scheduling.record import record_push
from api.tables import Attempt, Run, RunEvent
from hillclimb.protocol import events
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import (
    EndReport,
    Heartbeat,
    LaunchPlan,
    RegisterRunner,
    RunnerCommand,
)
from hillclimb.protocol.rundir import checkpoint_name, event_segment, run_key
from hillclimb.spec.data import DataSpec
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.schedule import ScheduleSpec
from worker.context import WorkerContext
from worker.runs import driver

PROJECT = "prj_test"
START = datetime(2026, 1, 1, tzinfo=UTC)


def spec(name: str = "sim") -> RunSpec:
    return RunSpec(
        name=name,
        data=DataSpec(env_keys=("booking",)),
        schedule=ScheduleSpec(total_steps=3, train_batch_size=1, mini_batch_size=1),
    )


@dataclass(slots=True)
class RunSimulation:
    """`now` moves only when a test says so."""

    context: WorkerContext
    now: datetime = START
    plan: LaunchPlan | None = None
    runner_id: str = ""
    seqs: dict[int, int] = field(default_factory=dict)

    def clock(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def submit(self, name: str = "sim", run_spec: RunSpec | None = None) -> str:
        made = run_spec or spec(name)
        with self.context.database.transaction() as session:
            return submit(session, made, project_id=PROJECT, actor="t", now=self.now).id

    def reconcile(self, run_id: str, owner: str = "worker-1") -> bool:
        return driver.reconcile(replace(self.context, owner=owner), run_id, clock=self.clock)

    def register(self, *attempts: str, slots: int = 1) -> None:
        body = RegisterRunner(name="box", hostname="box", slots=slots, attempts=attempts)
        with self.context.database.transaction() as session:
            self.runner_id = runners.register(session, PROJECT, body, now=self.now).id

    def claim(self) -> LaunchPlan | None:
        with self.context.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, self.runner_id)
            self.plan = runners.claim(session, runner, ingest_url="http://x", now=self.now)
        return self.plan

    def heartbeat(self, *attempts: str) -> tuple[RunnerCommand, ...]:
        with self.context.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, self.runner_id)
            body = Heartbeat(attempts=attempts)
            return runners.heartbeat(session, runner, body, now=self.now).commands

    def report(self, reason: ReasonCode, *, last_seq: int | None = None) -> None:
        assert self.plan is not None
        end = EndReport(reason=reason, message="as the runner saw it", last_trainer_seq=last_seq)
        with self.context.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, self.runner_id)
            runners.report_end(session, runner, self.plan.attempt_id, end, now=self.now)

    def push(self, *made: events.Event) -> None:
        assert self.plan is not None
        with self.context.database.transaction() as session:
            record_push(session, self.plan.attempt_token, made, now=self.now)

    def mirror(self, run_id: str, attempt: int, number: int, *made: events.Event) -> None:
        key = run_key(run_id, event_segment(attempt, number))
        lines = "".join(event.model_dump_json() + "\n" for event in made)
        self.context.store.put(key, lines.encode())

    def claimed(self, run_spec: RunSpec | None = None) -> str:
        """A run whose attempt a runner has claimed."""
        self.register()
        run_id = self.submit(run_spec=run_spec)
        self.reconcile(run_id)
        assert self.claim() is not None
        return run_id

    def running(self, run_spec: RunSpec | None = None) -> str:
        """A run whose trainer has sent its first event."""
        run_id = self.claimed(run_spec)
        self.push(self.started(1))
        return run_id

    def cancel(self, run_id: str) -> None:
        with self.context.database.transaction() as session:
            control.cancel(session, store.lock_run(session, run_id), actor="t", now=self.now)

    def pause(self, run_id: str) -> None:
        with self.context.database.transaction() as session:
            control.pause(session, store.lock_run(session, run_id), actor="t", now=self.now)

    def run(self, run_id: str) -> Run:
        with self.context.database.transaction() as session:
            return session.get_one(Run, run_id)

    def status(self, run_id: str) -> RunStatus:
        return RunStatus(self.run(run_id).status)

    def attempts(self, run_id: str) -> list[Attempt]:
        with self.context.database.transaction() as session:
            return list(store.list_attempts(session, run_id))

    def types(self, run_id: str) -> list[str]:
        query = select(RunEvent.type).where(RunEvent.run_id == run_id).order_by(RunEvent.seq)
        with self.context.database.transaction() as session:
            return list(session.scalars(query))

    def started(self, seq: int, resumed_from: int | None = None) -> events.TrainerStarted:
        return events.TrainerStarted(
            trainer_seq=seq,
            at=self.now,
            step=resumed_from or 0,
            total_steps=3,
            resumed_from_step=resumed_from,
            config_hash="0" * 64,
            prompt_version="p",
            engine="e",
            num_parameters=1,
            num_train_tasks=1,
            num_eval_tasks=1,
            versions={},
        )

    def checkpoint(self, seq: int, step: int, attempt: int = 1) -> events.CheckpointSaved:
        return events.CheckpointSaved(
            trainer_seq=seq,
            at=self.now,
            step=step,
            path=checkpoint_name(step, attempt),
            manifest_sha256="0" * 64,
            size_bytes=1,
        )

    def ended(self, seq: int, reason: ReasonCode, step: int = 3) -> events.TrainerEnded:
        return events.TrainerEnded(
            trainer_seq=seq,
            at=self.now,
            step=step,
            reason=reason,
            message="the trainer's own word",
            training_seconds=1.0,
        )
