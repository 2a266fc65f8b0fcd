"""Runs on clusters acted out on the database: scripted clouds, nodes that say what a test says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import select

from api.admission.lineage.resume import resume
from api.admission.submit import submit
from api.clusters import budgets
from api.clusters import store as clusters
from api.runs import store
from api.runs.status import RunStatus
from api.scheduling import control
from api.scheduling.outages import sweep_mark
from api.scheduling.record import record_push
from api.scheduling.rented import bootstrap, nodes
from api.tables import Attempt, Base, Cluster, Run, RunEvent
from hillclimb.protocol import events
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import BootstrapClaim, EndReport, LaunchPlan
from hillclimb.spec.run import RunSpec
from tests.worker.api_presence import Api
from tests.worker.clusters.scripted import ScriptedClouds
from tests.worker.run_simulation import PROJECT, spec
from worker.app import OBSERVE, SWEEP_PERIOD_S
from worker.clusters import observer, reconciler
from worker.context import WorkerContext
from worker.runs import driver, spending, sweeps
from worker.skypilot.options import ClusterOptions
from worker.skypilot.provider import CloudProvider
from worker.skypilot.wheel import LOCKS

SECRET = "a secret that is long enough"
LOOKS_EVERY = timedelta(seconds=SWEEP_PERIOD_S[OBSERVE])
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
class ClusterSimulation:
    """`clouds.now` is the time of everything; `api` may be sent away."""

    context: WorkerContext
    api: Api
    clouds: ScriptedClouds
    nonces: int = 0

    @classmethod
    def of(cls, context: WorkerContext, api: Api, folder: Path) -> ClusterSimulation:
        clouds = ScriptedClouds()
        options = ClusterOptions(
            api_url="http://127.0.0.1:1",
            blobs_url=str(folder),
            secret=SECRET,
            wheel=folder / "hillclimb-0.1.0-py3-none-any.whl",
            locks=tuple(folder / path.name for path in LOCKS),
        )
        cloud_provider = CloudProvider(clouds=lambda: clouds, options=lambda: options)
        return cls(replace(context, cloud_provider=cloud_provider), api, clouds)

    @property
    def now(self) -> datetime:
        return self.clouds.now

    def clock(self) -> datetime:
        return self.clouds.now

    def submit(self, name: str = "far", **sections: object) -> str:
        made = cluster_spec(name, **sections)
        with self.context.database.transaction() as session:
            return submit(session, made, project_id=PROJECT, actor="t", now=self.now).id

    def run_for(self, seconds: float, *, every_s: float | None = None) -> None:
        """Let the sweeps go on for so long: a minute in small steps, more in longer ones."""
        every_s = every_s or (5.0 if seconds <= 60 else 15.0 if seconds <= 120 else 30.0)
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
        observer.sweep(self.context, self.clouds, now=self.now)
        self.look_at_budgets()

    def step(self) -> None:
        """What it rings for at once."""
        for run_id in sweeps.runs(self.context, now=self.now):
            driver.reconcile(self.context, run_id, must_be_due=True, clock=self.clock)
        for cluster_id in sweeps.clusters(self.context, now=self.now):
            reconciler.reconcile(self.context, self.clouds, cluster_id, clock=self.clock)

    def mark_sweep(self) -> None:
        """Say that the workers were there all the time: nothing is late after an outage."""
        with self.context.database.transaction() as session:
            sweep_mark.mark(session, now=self.now)

    def look_at_budgets(self) -> int:
        return spending.sweep(self.context, now=self.now)

    def enter(self, run_id: str, nonce: str | None = None) -> LaunchPlan:
        """A job of the run's newest cluster asks for what it is to do."""
        self.nonces += 1
        attempt = self.attempts(run_id)[-1]
        body = BootstrapClaim(
            attempt_id=attempt.id,
            code=bootstrap.bootstrap_token(attempt.id, secret=SECRET),
            nonce=nonce or f"{self.nonces:016d}",
        )
        with self.context.database.transaction() as session:
            return bootstrap.claim(
                session, body, secret=SECRET, ingest_url="http://x", now=self.now
            )

    def push(self, plan: LaunchPlan, *made: events.Event) -> None:
        with self.context.database.transaction() as session:
            record_push(session, plan.attempt_token, made, now=self.now)

    def beat(self, plan: LaunchPlan) -> str | None:
        with self.context.database.transaction() as session:
            return nodes.heartbeat(session, plan.attempt_token, now=self.now).action

    def report(self, plan: LaunchPlan, reason: ReasonCode, *, last_seq: int | None = None) -> None:
        end = EndReport(reason=reason, message="as the node saw it", last_trainer_seq=last_seq)
        with self.context.database.transaction() as session:
            nodes.report_end(session, plan.attempt_token, end, now=self.now)

    def cancel(self, run_id: str) -> None:
        with self.context.database.transaction() as session:
            control.cancel(session, store.lock_run(session, run_id), actor="t", now=self.now)

    def pause(self, run_id: str) -> None:
        with self.context.database.transaction() as session:
            control.pause(session, store.lock_run(session, run_id), actor="t", now=self.now)

    def resume(self, run_id: str) -> str:
        """Return the run that goes on: the same one, or a new one."""
        with self.context.database.transaction() as session:
            run = store.lock_run(session, run_id)
            return resume(session, run, actor="t", now=self.now).id

    def extend(self, run_id: str, *, usd: float) -> None:
        with self.context.database.transaction() as session:
            run = store.lock_run(session, run_id)
            budgets.extend(session, run, usd=usd, hours=0.0, granted_by="t", now=self.now)

    def run(self, run_id: str) -> Run:
        with self.context.database.transaction() as session:
            return session.get_one(Run, run_id)

    def status(self, run_id: str) -> RunStatus:
        return RunStatus(self.run(run_id).status)

    def attempts(self, run_id: str) -> list[Attempt]:
        with self.context.database.transaction() as session:
            return list(store.list_attempts(session, run_id))

    def clusters(self, run_id: str) -> list[Cluster]:
        with self.context.database.transaction() as session:
            return list(clusters.of_run(session, run_id))

    def rows(self, table: type[Base]) -> list[Base]:
        with self.context.database.transaction() as session:
            return list(session.scalars(select(table)))

    def types(self, run_id: str) -> list[str]:
        query = select(RunEvent.type).where(RunEvent.run_id == run_id).order_by(RunEvent.seq)
        with self.context.database.transaction() as session:
            return list(session.scalars(query))
