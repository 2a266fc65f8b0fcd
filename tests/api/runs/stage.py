"""A run played on the real database, each call one transaction, with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select

from api.database import Database
from api.runs import control, runners, store
from api.runs.advance import advance
from api.runs.queue import place_of
from api.runs.record import record, record_push
from api.runs.submit import plan, submit
from api.tables import Attempt, Base, Run, RunEvent
from tests import factories as make
from tests.api.migrated import PROJECT
from trainer.contract.events import Event, IngestReply
from trainer.contract.launch import (
    AttemptEnd,
    Heartbeat,
    HeartbeatReply,
    LaunchPlan,
    RegisterRunner,
)
from trainer.contract.reasons import ReasonCode
from trainer.contract.spec import RUN_KINDS


@dataclass(slots=True)
class Stage:
    """`now` moves only when a test says so."""

    database: Database
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def submit(self, **sections: object) -> str:
        self.later(0.001)
        with self.database.transaction() as session:
            spec = make.make_spec(**sections)
            return submit(session, spec, project_id=PROJECT, actor="key:me", now=self.now).id

    def register(
        self,
        name: str = "box",
        *,
        slots: int = 1,
        attempts: tuple[str, ...] = (),
        kinds: tuple[str, ...] = RUN_KINDS,
    ) -> str:
        body = RegisterRunner(name=name, hostname=name, slots=slots, attempts=attempts, kinds=kinds)
        with self.database.transaction() as session:
            return runners.register(session, PROJECT, body, now=self.now).id

    def beat(self, runner_id: str, *attempts: str, draining: bool = False) -> HeartbeatReply:
        with self.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, runner_id)
            body = Heartbeat(attempts=attempts, draining=draining)
            return runners.heartbeat(session, runner, body, now=self.now)

    def claim(self, runner_id: str) -> LaunchPlan | None:
        with self.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, runner_id)
            return runners.claim(session, runner, ingest_url="http://x/v1/ingest", now=self.now)

    def advance(self, *run_ids: str) -> None:
        for run_id in run_ids:
            with self.database.transaction() as session:
                advance(session, store.lock_run(session, run_id), now=self.now)

    def launch(self, run_id: str, runner_id: str) -> LaunchPlan:
        """Offer and claim."""
        self.advance(run_id)
        plan = self.claim(runner_id)
        assert plan is not None
        assert plan.run_id == run_id
        return plan

    def running(self, *events: Event, **sections: object) -> tuple[str, str, LaunchPlan]:
        """A run whose trainer has sent `trainer.started` and these: (run, runner, plan)."""
        runner_id = self.register()
        run_id = self.submit(**sections)
        plan = self.launch(run_id, runner_id)
        self.push(plan, make.started(1), *events)
        return run_id, runner_id, plan

    def push(self, plan: LaunchPlan, *events: Event) -> IngestReply:
        with self.database.transaction() as session:
            return record_push(session, plan.attempt_token, events, now=self.now)[1]

    def relay(self, run_id: str, *events: Event) -> IngestReply:
        with self.database.transaction() as session:
            run = store.lock_run(session, run_id)
            attempt = store.newest_attempt(session, run)
            assert attempt is not None
            return record(session, run, attempt, events, now=self.now)

    def end(
        self,
        runner_id: str,
        plan: LaunchPlan,
        reason: ReasonCode = ReasonCode.COMPLETED,
        *,
        last_seq: int | None = None,
    ) -> None:
        body = AttemptEnd(reason=reason, message="seen by the runner", last_trainer_seq=last_seq)
        with self.database.transaction() as session:
            runner = runners.get_runner(session, PROJECT, runner_id)
            runners.report_end(session, runner, plan.attempt_id, body, now=self.now)

    def cancel(self, run_id: str) -> None:
        with self.database.transaction() as session:
            control.cancel(session, store.lock_run(session, run_id), actor="key:me", now=self.now)

    def pause(self, run_id: str) -> None:
        with self.database.transaction() as session:
            control.pause(session, store.lock_run(session, run_id), actor="key:me", now=self.now)

    def resume(self, run_id: str) -> str:
        with self.database.transaction() as session:
            run = store.lock_run(session, run_id)
            return control.resume(session, run, actor="key:me", now=self.now).id

    def change(self, run_id: str, edit: Callable[[Run], None]) -> None:
        with self.database.transaction() as session:
            edit(store.lock_run(session, run_id))

    def run(self, run_id: str) -> Run:
        with self.database.transaction() as session:
            return store.get_run(session, PROJECT, run_id)

    def status(self, run_id: str) -> str:
        return self.run(run_id).status

    def attempts(self, run_id: str) -> list[Attempt]:
        with self.database.transaction() as session:
            return list(store.list_attempts(session, run_id))

    def place(self, run_id: str) -> tuple[int, str | None]:
        with self.database.transaction() as session:
            found = place_of(session, store.get_run(session, PROJECT, run_id), now=self.now)
        return found.position, found.reason

    def plan(self, **sections: object) -> tuple[int, str | None]:
        with self.database.transaction() as session:
            found = plan(session, make.make_spec(**sections), project_id=PROJECT, now=self.now)
        return found.queue_position, found.queue_reason

    def events(self, run_id: str) -> list[RunEvent]:
        query = select(RunEvent).where(RunEvent.run_id == run_id).order_by(RunEvent.seq)
        with self.database.transaction() as session:
            return list(session.scalars(query))

    def types(self, run_id: str) -> list[str]:
        return [event.type for event in self.events(run_id)]

    def rows(self, table: type[Base]) -> list[Any]:
        with self.database.transaction() as session:
            return list(session.scalars(select(table)))
