"""What happens around the service in the simulation: nodes that train, users, clouds that take."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate

from sqlalchemy import select, update

from api.admission.lineage.resume import resume
from api.runs import store
from api.runs.errors import AttemptSuperseded, InvalidTransition, NothingToResume, UnknownToken
from api.runs.status import AttemptState
from api.scheduling import control
from api.scheduling.record import record_push
from api.scheduling.rented import bootstrap, nodes
from api.tables import Attempt
from benchmarks.clusters.faulty import FaultyClouds
from hillclimb.protocol import events
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import BootstrapClaim, EndReport, LaunchPlan
from tests.fixtures import factories as make
from tests.worker.clusters.cluster_simulation import SECRET
from tests.worker.clusters.scripted import Cluster as Rented
from worker.context import WorkerContext
from worker.skypilot.port import CloudJob, JobState

STEP_S = 60.0
"""Seconds of training per step; every fifth is saved."""
SAVE_EVERY = 5
BEAT = timedelta(seconds=15)
PER_HOUR = {"preempted": 0.5, "trainer crashed": 0.2, "node died silently": 0.1}
"""Chances of each, per hour of a cluster that trains."""
_BELOW = dict(zip(PER_HOUR, accumulate(PER_HOUR.values()), strict=True))


@dataclass(slots=True)
class Node:
    """The first node of a cluster whose job has taken the attempt."""

    name: str
    job_id: int
    plan: LaunchPlan
    begun_at: datetime
    from_step: int
    seq: int = 1
    saved_step: int = 0


@dataclass(slots=True)
class World:
    """Everything that is not the service; `total` is steps to train by run."""

    context: WorkerContext
    clouds: FaultyClouds
    rng: random.Random
    total: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    """By the cluster's name."""
    counts: Counter[str] = field(default_factory=Counter)
    beaten_at: datetime | None = None

    @property
    def now(self) -> datetime:
        return self.clouds.now

    def act(self, passed_s: float) -> None:
        """Let nodes enter, train and end, and clouds take machines back."""
        for rented in list(self.clouds.clusters.values()):
            if rented.terminating_at is None:
                self._enter(rented)
        if self.beaten_at is None or self.now - self.beaten_at >= BEAT:
            self._beat()
        for node in list(self.nodes.values()):
            if not self._is_there(node):
                del self.nodes[node.name]
            elif not self._strikes(node, passed_s):
                self._train(node)

    def _enter(self, rented: Rented) -> None:
        """Each live job that has not asked yet asks for what it is to do; one may have it."""
        node = self.nodes.get(rented.name)
        for job in rented.jobs:
            if not job.state.is_live or (node is not None and node.job_id == job.id):
                continue
            body = BootstrapClaim(
                attempt_id=job.name,
                code=bootstrap.bootstrap_token(job.name, secret=SECRET),
                nonce=f"{rented.name[-20:]}-{job.id}".rjust(16, "0"),
            )
            try:
                with self.context.database.transaction() as session:
                    plan = bootstrap.claim(
                        session, body, secret=SECRET, ingest_url="http://x", now=self.now
                    )
            except (AttemptSuperseded, UnknownToken):
                self.counts["job sent away"] += 1
                self._end_job(rented, job, JobState.FAILED)
                continue
            self._begin(rented.name, job, plan)

    def _begin(self, name: str, job: CloudJob, plan: LaunchPlan) -> None:
        from_step = 0
        if plan.resume_from is not None:
            from_step = int(plan.resume_from.partition("global_step_")[2].partition("/")[0])
            self.counts["attempt resumed from a checkpoint"] += 1
        node = Node(name, job.id, plan, self.now, from_step, saved_step=from_step)
        self.nodes[name] = node
        self._push(node, make.started(node.seq))

    def _beat(self) -> None:
        """Beats of all nodes, as `nodes.heartbeat` notes each one, in one statement."""
        self.beaten_at = self.now
        ids = [node.plan.attempt_id for node in self.nodes.values() if self._is_there(node)]
        mine = update(Attempt).where(Attempt.id.in_(ids), Attempt.state != AttemptState.ENDED.value)
        wanted = select(Attempt).where(Attempt.id.in_(ids))
        wanted = wanted.where(
            Attempt.stop_requested_at.is_not(None) | (Attempt.state == AttemptState.ENDED.value)
        )
        with self.context.database.transaction() as session:
            session.execute(mine.values(last_held_at=self.now))
            told = {each.id: nodes.requested_action(each) for each in session.scalars(wanted)}
        for node in list(self.nodes.values()):
            action = told.get(node.plan.attempt_id)
            if action is not None:
                self.counts[f"node told to {action}"] += 1
                if action == "stop":
                    self._save(node)
                self._end(node, ReasonCode.RUNNER_STOPPED, JobState.SUCCEEDED)

    def _strikes(self, node: Node, passed_s: float) -> bool:
        """Let a fault happen to a node that trains; True when it is gone."""
        drawn = self.rng.random() * 3600.0 / passed_s
        what = next((name for name, below in _BELOW.items() if drawn < below), None)
        if what is None:
            return False
        self.counts[what] += 1
        if what == "preempted":
            self.clouds.preempt(node.name)
            del self.nodes[node.name]
        elif what == "trainer crashed":
            self._end(node, ReasonCode.TRAINER_CRASHED, JobState.FAILED)
        else:
            self.clouds.end_jobs(node.name, JobState.FAILED)
            del self.nodes[node.name]
        return True

    def _train(self, node: Node) -> None:
        trained_s = (self.now - node.begun_at).total_seconds()
        step = node.from_step + int(trained_s / STEP_S)
        total = self.total[node.plan.run_id]
        if step >= total:
            node.seq += 1
            self._push(node, make.ended(node.seq))
            self._end(node, ReasonCode.COMPLETED, JobState.SUCCEEDED)
        elif step - node.saved_step >= SAVE_EVERY:
            self._save(node, step)

    def _save(self, node: Node, step: int | None = None) -> None:
        trained_s = (self.now - node.begun_at).total_seconds()
        step = node.from_step + int(trained_s / STEP_S) if step is None else step
        if step > node.saved_step:
            node.seq, node.saved_step = node.seq + 1, step
            self._push(node, make.saved(node.seq, step, node.plan.attempt))

    def _push(self, node: Node, *made: events.Event) -> None:
        refused = suppress(UnknownToken, AttemptSuperseded)
        with refused, self.context.database.transaction() as session:
            record_push(session, node.plan.attempt_token, made, now=self.now)

    def _end(self, node: Node, reason: ReasonCode, job: JobState) -> None:
        end = EndReport(reason=reason, message="scripted", last_trainer_seq=node.seq)
        with suppress(UnknownToken), self.context.database.transaction() as session:
            nodes.report_end(session, node.plan.attempt_token, end, now=self.now)
        self.clouds.end_jobs(node.name, job)
        self.nodes.pop(node.name, None)

    def _end_job(self, rented: Rented, job: CloudJob, state: JobState) -> None:
        rented.jobs = [
            CloudJob(id=each.id, name=each.name, state=state) if each.id == job.id else each
            for each in rented.jobs
        ]

    def _is_there(self, node: Node) -> bool:
        rented = self.clouds.clusters.get(node.name)
        return rented is not None and rented.terminating_at is None

    def user(self, run_id: str, what: str) -> bool:
        """Cancel, pause or resume; False where the service says that it cannot be."""
        act = {"cancel": control.cancel, "pause": control.pause, "resume": resume}[what]
        try:
            with self.context.database.transaction() as session:
                act(session, store.lock_run(session, run_id), actor="key:u", now=self.now)
        except (InvalidTransition, NothingToResume):
            return False
        self.counts[f"user: {what}"] += 1
        return True
