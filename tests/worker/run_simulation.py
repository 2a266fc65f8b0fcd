"""Runs, runners and trainers acted out on the database, with a clock of their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from api.runs import control, runners, store
from api.runs.record import record_push
from api.runs.status import RunStatus
from api.runs.submit import submit
from api.tables import Attempt, Run, RunEvent
from trainer.contract import events
from trainer.contract.data import DataSpec
from trainer.contract.launch import AttemptEnd, Heartbeat, LaunchPlan, RegisterRunner, RunnerCommand
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import checkpoint_name, event_segment, run_key
from trainer.contract.sections import ScheduleSpec
from trainer.contract.spec import RunSpec
from worker import driver
from worker.parts import Parts

PROJECT = "prj_test"
START = datetime(2026, 1, 1, tzinfo=UTC)


def spec(name: str = "scene") -> RunSpec:
    return RunSpec(
        name=name,
        data=DataSpec(env_keys=("booking",)),
        schedule=ScheduleSpec(total_steps=3, train_batch_size=1, mini_batch_size=1),
    )


@dataclass(slots=True)
class Scene:
    """`now` moves only when a test says so."""

    parts: Parts
    now: datetime = START
    plan: LaunchPlan | None = None
    runner_id: str = ""
    seqs: dict[int, int] = field(default_factory=dict)

    def clock(self) -> datetime:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def submit(self, name: str = "scene") -> str:
        with self.parts.database.transaction() as session:
            return submit(session, spec(name), project_id=PROJECT, actor="t", now=self.now).id

    def reconcile(self, run_id: str, owner: str = "worker-1") -> bool:
        return driver.reconcile(replace(self.parts, owner=owner), run_id, clock=self.clock)

    def register(self, *attempts: str, slots: int = 1) -> None:
        body = RegisterRunner(name="box", hostname="box", slots=slots, attempts=attempts)
        with self.parts.database.transaction() as session:
            self.runner_id = runners.register(session, PROJECT, body, now=self.now).id

    def claim(self) -> LaunchPlan | None:
        with self.parts.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, self.runner_id)
            self.plan = runners.claim(session, runner, ingest_url="http://x", now=self.now)
        return self.plan

    def heartbeat(self, *attempts: str) -> tuple[RunnerCommand, ...]:
        with self.parts.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, self.runner_id)
            body = Heartbeat(attempts=attempts)
            return runners.heartbeat(session, runner, body, now=self.now).commands

    def report(self, reason: ReasonCode, *, last_seq: int | None = None) -> None:
        assert self.plan is not None
        end = AttemptEnd(reason=reason, message="as the runner saw it", last_trainer_seq=last_seq)
        with self.parts.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, self.runner_id)
            runners.report_end(session, runner, self.plan.attempt_id, end, now=self.now)

    def push(self, *made: events.Event) -> None:
        assert self.plan is not None
        with self.parts.database.transaction() as session:
            record_push(session, self.plan.attempt_token, made, now=self.now)

    def mirror(self, run_id: str, attempt: int, number: int, *made: events.Event) -> None:
        key = run_key(run_id, event_segment(attempt, number))
        lines = "".join(event.model_dump_json() + "\n" for event in made)
        self.parts.store.put(key, lines.encode())

    def running(self) -> str:
        """A run whose trainer has sent its first event."""
        self.register()
        run_id = self.submit()
        self.reconcile(run_id)
        assert self.claim() is not None
        self.push(self.started(1))
        return run_id

    def cancel(self, run_id: str) -> None:
        with self.parts.database.transaction() as session:
            control.cancel(session, store.lock_run(session, run_id), actor="t", now=self.now)

    def pause(self, run_id: str) -> None:
        with self.parts.database.transaction() as session:
            control.pause(session, store.lock_run(session, run_id), actor="t", now=self.now)

    def run(self, run_id: str) -> Run:
        with self.parts.database.transaction() as session:
            return session.get_one(Run, run_id)

    def status(self, run_id: str) -> RunStatus:
        return RunStatus(self.run(run_id).status)

    def attempts(self, run_id: str) -> list[Attempt]:
        with self.parts.database.transaction() as session:
            return list(store.list_attempts(session, run_id))

    def types(self, run_id: str) -> list[str]:
        query = select(RunEvent.type).where(RunEvent.run_id == run_id).order_by(RunEvent.seq)
        with self.parts.database.transaction() as session:
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
