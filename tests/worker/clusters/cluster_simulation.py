"""Runs on clusters acted out on the database: scripted clouds, nodes that say what a test says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import select

from api.clusters import budgets, exchange, nodes
from api.clusters import store as clusters
from api.runs import control, store
from api.runs.record import record_push
from api.runs.status import RunStatus
from api.runs.submit import submit
from api.tables import Attempt, Base, Cluster, Run, RunEvent
from tests.worker.clusters.scripted import ScriptedClouds
from tests.worker.presence import Api
from tests.worker.scene import PROJECT, spec
from trainer.contract import events
from trainer.contract.launch import AttemptEnd, ExchangeCode, LaunchPlan
from trainer.contract.reasons import ReasonCode
from trainer.contract.spec import RunSpec
from worker import driver, rounds
from worker.app import EVERY_S, OBSERVE
from worker.clusters import observer, spending, step
from worker.clusters.options import ClusterOptions
from worker.clusters.renting import Renting
from worker.parts import Parts

SECRET = "a secret that is long enough"
LOOKS_EVERY = timedelta(seconds=EVERY_S[OBSERVE])
SKY = {
    "type": "skypilot",
    "skypilot": {
        "candidates": [
            {"infra": "lambda", "accelerators": "H100:8"},
            {"infra": "slurm/own", "accelerators": "H100:8"},
        ],
        "num_nodes": 1,
    },
}


def cluster_spec(name: str = "far", **sections: object) -> RunSpec:
    told = spec(name).model_dump(mode="json") | {"backend": SKY, "experimental": True}
    told |= sections
    return RunSpec.model_validate(told)


@dataclass(slots=True)
class ClusterScene:
    """`clouds.now` is the time of everything; `api` may be sent away."""

    parts: Parts
    api: Api
    clouds: ScriptedClouds
    nonces: int = 0

    @classmethod
    def of(cls, parts: Parts, api: Api, folder: Path) -> ClusterScene:
        clouds = ScriptedClouds()
        options = ClusterOptions(
            api_url="http://127.0.0.1:1",
            blobs_url=str(folder),
            secret=SECRET,
            wheel=folder / "hillclimb-0.1.0-py3-none-any.whl",
            locks=(folder / "trainer.txt", folder / "trainer-gpu.txt"),
        )
        renting = Renting(clouds=lambda: clouds, options=lambda: options)
        return cls(replace(parts, renting=renting), api, clouds)

    @property
    def now(self) -> datetime:
        return self.clouds.now

    def clock(self) -> datetime:
        return self.clouds.now

    def submit(self, name: str = "far", **sections: object) -> str:
        made = cluster_spec(name, **sections)
        with self.parts.database.transaction() as session:
            return submit(session, made, project_id=PROJECT, actor="t", now=self.now).id

    def run_for(self, seconds: float, *, every_s: float | None = None) -> None:
        """Let the sweeps go on for so long: a minute in small steps, more in longer ones."""
        every_s = every_s or (5.0 if seconds <= 60 else 15.0)
        end = self.now + timedelta(seconds=seconds)
        looks_at = self.now
        while self.now < end:
            if self.now >= looks_at:
                looks_at = self.now + LOOKS_EVERY
                self.look()
            self.step()
            self.clouds.pass_time(every_s)
        self.sweep()

    def sweep(self) -> None:
        """One round of all that the clock rings for."""
        self.look()
        self.step()

    def look(self) -> None:
        """What it rings for from time to time."""
        observer.sweep(self.parts, self.clouds, now=self.now)
        self.look_at_budgets()

    def step(self) -> None:
        """What it rings for at once."""
        for run_id in rounds.runs(self.parts, now=self.now):
            driver.reconcile(self.parts, run_id, must_be_due=True, clock=self.clock)
        for cluster_id in rounds.clusters(self.parts, now=self.now):
            step.reconcile(self.parts, self.clouds, cluster_id, clock=self.clock)

    def look_at_budgets(self) -> int:
        return spending.sweep(self.parts, now=self.now)

    def enter(self, run_id: str, nonce: str | None = None) -> LaunchPlan:
        """A job of the run's newest cluster asks for what it is to do."""
        self.nonces += 1
        attempt = self.attempts(run_id)[-1]
        body = ExchangeCode(
            attempt_id=attempt.id,
            code=exchange.exchange_code(attempt.id, secret=SECRET),
            nonce=nonce or f"{self.nonces:016d}",
        )
        with self.parts.database.transaction() as session:
            return exchange.exchange(
                session, body, secret=SECRET, ingest_url="http://x", now=self.now
            )

    def push(self, plan: LaunchPlan, *made: events.Event) -> None:
        with self.parts.database.transaction() as session:
            record_push(session, plan.attempt_token, made, now=self.now)

    def beat(self, plan: LaunchPlan) -> str | None:
        with self.parts.database.transaction() as session:
            return nodes.heartbeat(session, plan.attempt_token, now=self.now).action

    def report(self, plan: LaunchPlan, reason: ReasonCode, *, last_seq: int | None = None) -> None:
        end = AttemptEnd(reason=reason, message="as the node saw it", last_trainer_seq=last_seq)
        with self.parts.database.transaction() as session:
            nodes.report_end(session, plan.attempt_token, end, now=self.now)

    def cancel(self, run_id: str) -> None:
        with self.parts.database.transaction() as session:
            control.cancel(session, store.lock_run(session, run_id), actor="t", now=self.now)

    def pause(self, run_id: str) -> None:
        with self.parts.database.transaction() as session:
            control.pause(session, store.lock_run(session, run_id), actor="t", now=self.now)

    def resume(self, run_id: str) -> str:
        """Return the run that goes on: the same one, or a new one."""
        with self.parts.database.transaction() as session:
            run = store.lock_run(session, run_id)
            return control.resume(session, run, actor="t", now=self.now).id

    def extend(self, run_id: str, *, usd: float) -> None:
        with self.parts.database.transaction() as session:
            run = store.lock_run(session, run_id)
            budgets.extend(session, run, usd=usd, hours=0.0, granted_by="t", now=self.now)

    def run(self, run_id: str) -> Run:
        with self.parts.database.transaction() as session:
            return session.get_one(Run, run_id)

    def status(self, run_id: str) -> RunStatus:
        return RunStatus(self.run(run_id).status)

    def attempts(self, run_id: str) -> list[Attempt]:
        with self.parts.database.transaction() as session:
            return list(store.list_attempts(session, run_id))

    def clusters(self, run_id: str) -> list[Cluster]:
        with self.parts.database.transaction() as session:
            return list(clusters.of_run(session, run_id))

    def rows(self, table: type[Base]) -> list[Base]:
        with self.parts.database.transaction() as session:
            return list(session.scalars(select(table)))

    def types(self, run_id: str) -> list[str]:
        query = select(RunEvent.type).where(RunEvent.run_id == run_id).order_by(RunEvent.seq)
        with self.parts.database.transaction() as session:
            return list(session.scalars(query))
