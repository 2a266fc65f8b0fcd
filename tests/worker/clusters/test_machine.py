"""Everything at once, in any order: at most one cluster per run, none left, every run ends.

Workers die in the middle of a tick, ticks are lost and repeated, the API server forgets, does not
answer or answers too late, clusters are taken back; users cancel, pause and resume.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

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

from api.runs.errors import AttemptSuperseded, InvalidTransition, NothingToResume, UnknownToken
from api.runs.status import TERMINAL, RunStatus
from tests import factories as make
from tests.worker.clusters.scene import ClusterScene
from tests.worker.clusters.scripted import ScriptedClouds
from trainer.contract.launch import LaunchPlan
from trainer.contract.reasons import ReasonCode
from worker.clusters import step

ENDS = (ReasonCode.COMPLETED, ReasonCode.TRAINER_CRASHED, ReasonCode.RUNNER_STOPPED)
WHICH = st.integers(min_value=0, max_value=2)
HOURS = 4.0


class Killed(Exception):
    """The worker's process is gone."""


class Everything(RuleBasedStateMachine):
    def __init__(self, far: ClusterScene) -> None:
        super().__init__()
        clouds = ScriptedClouds(now=far.clouds.now)
        assert far.parts.renting is not None
        renting = replace(far.parts.renting, clouds=lambda: clouds)
        self.far = ClusterScene(replace(far.parts, renting=renting), clouds)
        self.runs: list[str] = []
        self.plans: dict[str, LaunchPlan] = {}

    @initialize()
    def begin(self) -> None:
        self.runs.append(self.far.submit())

    @precondition(lambda self: len(self.runs) < 3)
    @rule()
    def submit(self) -> None:
        self.runs.append(self.far.submit())

    @rule(seconds=st.sampled_from((5.0, 20.0, 100.0, 400.0)))
    def work(self, seconds: float) -> None:
        self.far.run_for(seconds, every_s=max(5.0, seconds / 10))

    @rule(seconds=st.sampled_from((5.0, 40.0, 300.0)))
    def nobody_works(self, seconds: float) -> None:
        self.far.clouds.pass_time(seconds)

    @rule(actions=st.integers(min_value=0, max_value=6))
    def a_worker_dies_in_a_tick(self, actions: int) -> None:
        left = actions

        def perform(*arguments: object) -> object:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return whole(*arguments)  # type: ignore[arg-type]

        whole, step.perform = step.perform, perform  # type: ignore[assignment]
        try:
            with suppress(Killed):
                self.far.sweep()
        finally:
            step.perform = whole

    @rule(away=st.booleans(), loses=st.booleans(), fails=st.booleans())
    def the_clouds_change(self, *, away: bool, loses: bool, fails: bool) -> None:
        clouds = self.far.clouds
        clouds.is_away, clouds.loses_answers, clouds.fails_launches = away, loses, fails

    @rule()
    def the_api_server_starts_again(self) -> None:
        self.far.clouds.restart_server()

    @rule(which=WHICH)
    def a_cluster_is_taken_back(self, which: int) -> None:
        names = sorted(self.far.clouds.clusters)
        if names:
            self.far.clouds.preempt(names[which % len(names)])

    @rule(which=WHICH, again=st.booleans())
    def a_job_enters(self, which: int, *, again: bool) -> None:
        run_id = self.runs[which % len(self.runs)]
        if not self._has_job(run_id):
            return
        with suppress(AttemptSuperseded):
            plan = self.far.enter(run_id, nonce="same job 0000000" if again else None)
            self.plans[run_id] = plan
            self.far.push(plan, make.started(1))

    @rule(which=WHICH)
    def a_node_beats(self, which: int) -> None:
        plan = self.plans.get(self.runs[which % len(self.runs)])
        if plan is not None:
            with suppress(UnknownToken):
                self.far.beat(plan)

    @rule(which=WHICH, reason=st.sampled_from(ENDS))
    def a_trainer_ends(self, which: int, reason: ReasonCode) -> None:
        plan = self.plans.pop(self.runs[which % len(self.runs)], None)
        if plan is not None:
            with suppress(UnknownToken):
                self.far.report(plan, reason, last_seq=1)

    @rule(which=WHICH, what=st.sampled_from(("cancel", "pause", "resume")))
    def a_user_acts(self, which: int, what: str) -> None:
        with suppress(InvalidTransition, NothingToResume):
            getattr(self.far, what)(self.runs[which % len(self.runs)])

    @invariant()
    def at_most_one_cluster_per_run(self) -> None:
        clouds = self.far.clouds
        for run_id in self.runs:
            names = [cluster.name for cluster in self.far.clusters(run_id)]
            there = {name for name in names if name in clouds.clusters}
            coming = {name for name in names if clouds.under_way(name)}
            assert len(there | coming) <= 1, (run_id, there, coming)
        assert clouds.max_open <= 1

    def teardown(self) -> None:
        clouds = self.far.clouds
        clouds.is_away = clouds.loses_answers = clouds.fails_launches = False
        for _ in range(int(HOURS * 60)):
            self.far.run_for(60, every_s=20.0)
            for run_id in self.runs:
                self._finish(run_id)
            if all(self._is_over(run_id) and self._is_given_back(run_id) for run_id in self.runs):
                break
        for run_id in self.runs:
            assert self._is_over(run_id), (self.far.status(run_id), self.far.types(run_id))
            assert self._is_given_back(run_id), self.far.clusters(run_id)
        assert clouds.clusters == {}

    def _finish(self, run_id: str) -> None:
        if self.far.status(run_id) is RunStatus.PAUSED:
            return
        if self._has_job(run_id) and self.far.status(run_id) is RunStatus.PROVISIONING:
            with suppress(AttemptSuperseded):
                self.plans[run_id] = self.far.enter(run_id)
        plan = self.plans.pop(run_id, None)
        if plan is not None:
            with suppress(UnknownToken):
                self.far.report(plan, ReasonCode.COMPLETED)

    def _has_job(self, run_id: str) -> bool:
        made = self.far.clusters(run_id)
        there = self.far.clouds.clusters.get(made[-1].name) if made else None
        return there is not None and bool(there.jobs) and there.ending_at is None

    def _is_given_back(self, run_id: str) -> bool:
        return {cluster.state for cluster in self.far.clusters(run_id)} <= {"gone"}

    def _is_over(self, run_id: str) -> bool:
        return self.far.status(run_id) in TERMINAL | {RunStatus.PAUSED}


def test_whatever_happens(far: ClusterScene) -> None:
    run_state_machine_as_test(
        lambda: Everything(far),
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
