"""Everything at once, in any order: at most one cluster per run, none left, every run ends.

Workers die in the middle of a tick, ticks are lost and repeated, two observers look, the API server
forgets, does not answer or answers too late, our own API comes and goes, clusters are taken back,
reach their time or get a job twice; budgets run out; users cancel, pause, resume and extend. `make
fuzz` tries hundreds of histories.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from api.clusters.errors import NoBudget
from api.runs import store
from api.runs.errors import AttemptSuperseded, InvalidTransition, NothingToResume, UnknownToken
from api.runs.leases import due_runs
from api.runs.status import TERMINAL, RunStatus
from api.scheduling.advance import advance
from api.scheduling.outages.deferral import defer_idle
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import LaunchPlan
from tests.fixtures import factories as make
from tests.worker.clusters.cluster_simulation import SKY, ClusterSimulation
from tests.worker.clusters.scripted import ScriptedClouds
from worker.clusters import observer, reconciler
from worker.runs import driver, sweeps
from worker.skypilot.port import JobState

ENDS = (ReasonCode.COMPLETED, ReasonCode.TRAINER_CRASHED, ReasonCode.RUNNER_STOPPED)
WHICH = st.integers(min_value=0, max_value=2)
HOURS = 4.0


class Killed(Exception):
    """The worker's process is gone."""


class Everything(RuleBasedStateMachine):
    def __init__(self, cluster_sim: ClusterSimulation) -> None:
        super().__init__()
        clouds = ScriptedClouds(now=cluster_sim.clouds.now)
        assert cluster_sim.context.cloud_provider is not None
        cloud_provider = replace(cluster_sim.context.cloud_provider, clouds=lambda: clouds)
        self.cluster_sim = ClusterSimulation(
            replace(cluster_sim.context, cloud_provider=cloud_provider), cluster_sim.api, clouds
        )
        self.runs: list[str] = []
        self.plans: dict[str, LaunchPlan] = {}

    @initialize()
    def begin(self) -> None:
        self.runs.append(self.cluster_sim.submit())

    @precondition(lambda self: len(self.runs) < 3)
    @rule(usd=st.sampled_from((None, 1.0)), max_hours=st.sampled_from((24.0, 0.1)))
    def submit(self, usd: float | None, max_hours: float) -> None:
        sky = SKY | {"skypilot": SKY["skypilot"] | {"max_hours": max_hours}}
        budget = None if usd is None else {"usd": usd}
        self.runs.append(self.cluster_sim.submit(backend=sky, budget=budget))

    @rule(which=WHICH)
    def a_budget_is_extended(self, which: int) -> None:
        with suppress(NoBudget):
            self.cluster_sim.extend(self.runs[which % len(self.runs)], usd=1.0)

    @rule()
    def messages_come_twice(self) -> None:
        context, clock = self.cluster_sim.context, self.cluster_sim.clock
        waiting = sweeps.clusters(context, now=self.cluster_sim.now)
        for run_id in 2 * list(sweeps.runs(context, now=self.cluster_sim.now)):
            driver.reconcile(context, run_id, must_be_due=True, clock=clock)
        for run_id in self.runs:
            driver.reconcile(context, run_id, clock=clock)
        for cluster_id in 2 * list(waiting):
            reconciler.reconcile(context, self.cluster_sim.clouds, cluster_id, clock=clock)

    @rule(dry_run=st.booleans())
    def a_second_observer_looks(self, *, dry_run: bool) -> None:
        for _ in range(2):
            observer.sweep(
                self.cluster_sim.context,
                self.cluster_sim.clouds,
                dry_run=dry_run,
                now=self.cluster_sim.now,
            )

    @rule(which=WHICH)
    def a_job_is_there_twice(self, which: int) -> None:
        with_jobs = [each for each in self.cluster_sim.clouds.clusters.values() if each.jobs]
        if with_jobs:
            jobs = with_jobs[which % len(with_jobs)].jobs
            jobs.append(replace(jobs[0], id=len(jobs) + 1, state=JobState.RUNNING))

    @rule()
    def what_is_put_off_needs_nothing(self) -> None:
        before = {run_id: self._facts(run_id) for run_id in self.runs}
        with self.cluster_sim.context.database.transaction() as session:
            due = set(due_runs(session, now=self.cluster_sim.now))
            defer_idle(session, now=self.cluster_sim.now)
            quiet = due - set(due_runs(session, now=self.cluster_sim.now))
        for run_id in quiet:
            with self.cluster_sim.context.database.transaction() as session:
                advance(session, store.lock_run(session, run_id), now=self.cluster_sim.now)
            assert self._facts(run_id) == before[run_id]

    def _facts(self, run_id: str) -> tuple[object, ...]:
        run = self.cluster_sim.run(run_id)
        return run.status, run.attempt, run.deadline_at, run.last_seq

    @rule(seconds=st.sampled_from((5.0, 20.0, 100.0, 400.0)))
    def work(self, seconds: float) -> None:
        self.cluster_sim.run_for(seconds, every_s=max(5.0, seconds / 10))

    @rule(seconds=st.sampled_from((5.0, 40.0, 300.0)))
    def nobody_works(self, seconds: float) -> None:
        self.cluster_sim.clouds.pass_time(seconds)

    @rule(actions=st.integers(min_value=0, max_value=6))
    def a_worker_dies_in_a_tick(self, actions: int) -> None:
        left = actions

        def execute(*arguments: object) -> object:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return whole(*arguments)  # type: ignore[arg-type]

        whole, reconciler.execute = reconciler.execute, execute  # type: ignore[assignment]
        try:
            with suppress(Killed):
                self.cluster_sim.sweep()
        finally:
            reconciler.execute = whole

    @rule(away=st.booleans(), loses=st.booleans(), fails=st.booleans())
    def the_clouds_change(self, *, away: bool, loses: bool, fails: bool) -> None:
        clouds = self.cluster_sim.clouds
        clouds.is_away, clouds.loses_answers, clouds.fails_launches = away, loses, fails

    @rule(is_there=st.booleans())
    def our_own_api_comes_and_goes(self, *, is_there: bool) -> None:
        if is_there:
            self.cluster_sim.api.comes()
        else:
            self.cluster_sim.api.goes()

    @rule()
    def the_api_server_starts_again(self) -> None:
        self.cluster_sim.clouds.restart_server()

    @rule(which=WHICH)
    def a_cluster_is_taken_back(self, which: int) -> None:
        names = sorted(self.cluster_sim.clouds.clusters)
        if names:
            self.cluster_sim.clouds.preempt(names[which % len(names)])

    @rule(which=WHICH, again=st.booleans())
    def a_job_enters(self, which: int, *, again: bool) -> None:
        run_id = self.runs[which % len(self.runs)]
        if not self._has_job(run_id):
            return
        with suppress(AttemptSuperseded):
            plan = self.cluster_sim.enter(run_id, nonce="same job 0000000" if again else None)
            self.plans[run_id] = plan
            self.cluster_sim.push(plan, make.started(1))

    @rule(which=WHICH)
    def a_node_beats(self, which: int) -> None:
        plan = self.plans.get(self.runs[which % len(self.runs)])
        if plan is not None:
            with suppress(UnknownToken):
                self.cluster_sim.beat(plan)

    @rule(which=WHICH, reason=st.sampled_from(ENDS))
    def a_trainer_ends(self, which: int, reason: ReasonCode) -> None:
        plan = self.plans.pop(self.runs[which % len(self.runs)], None)
        if plan is not None:
            with suppress(UnknownToken):
                self.cluster_sim.report(plan, reason, last_seq=1)

    @rule(which=WHICH, what=st.sampled_from(("cancel", "pause", "resume")))
    def a_user_acts(self, which: int, what: str) -> None:
        with suppress(InvalidTransition, NothingToResume):
            getattr(self.cluster_sim, what)(self.runs[which % len(self.runs)])

    @invariant()
    def at_most_one_cluster_per_run(self) -> None:
        clouds = self.cluster_sim.clouds
        for run_id in self.runs:
            names = [cluster.name for cluster in self.cluster_sim.clusters(run_id)]
            there = {name for name in names if name in clouds.clusters}
            coming = {name for name in names if clouds.under_way(name)}
            assert len(there | coming) <= 1, (run_id, there, coming)
        assert clouds.max_open <= 1

    def teardown(self) -> None:
        clouds = self.cluster_sim.clouds
        self.cluster_sim.api.comes()
        clouds.is_away = clouds.loses_answers = clouds.fails_launches = False
        for _ in range(int(HOURS * 60)):
            self.cluster_sim.run_for(60, every_s=30.0)
            for run_id in self.runs:
                self._finish(run_id)
            if all(self._is_over(run_id) and self._is_given_back(run_id) for run_id in self.runs):
                break
        for run_id in self.runs:
            assert self._is_over(run_id), (
                self.cluster_sim.status(run_id),
                self.cluster_sim.types(run_id),
            )
            assert self._is_given_back(run_id), self.cluster_sim.clusters(run_id)
        assert clouds.clusters == {}

    def _finish(self, run_id: str) -> None:
        if self.cluster_sim.status(run_id) is RunStatus.PAUSED:
            return
        if self._has_job(run_id) and self.cluster_sim.status(run_id) is RunStatus.PROVISIONING:
            with suppress(AttemptSuperseded):
                self.plans[run_id] = self.cluster_sim.enter(run_id)
        plan = self.plans.pop(run_id, None)
        if plan is not None:
            with suppress(UnknownToken):
                self.cluster_sim.report(plan, ReasonCode.COMPLETED)

    def _has_job(self, run_id: str) -> bool:
        made = self.cluster_sim.clusters(run_id)
        there = self.cluster_sim.clouds.clusters.get(made[-1].name) if made else None
        return there is not None and bool(there.jobs) and there.terminating_at is None

    def _is_given_back(self, run_id: str) -> bool:
        return {cluster.state for cluster in self.cluster_sim.clusters(run_id)} <= {"terminated"}

    def _is_over(self, run_id: str) -> bool:
        return self.cluster_sim.status(run_id) in TERMINAL | {RunStatus.PAUSED}


@pytest.mark.invariant("no history of faults leaks a machine or ends a run for another's fault")
def test_whatever_happens(cluster_sim: ClusterSimulation) -> None:
    run_state_machine_as_test(
        lambda: Everything(cluster_sim),
        settings=settings(
            max_examples=settings().max_examples // 8,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
