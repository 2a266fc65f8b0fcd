"""Any history of lost answers, restarts, preemptions and cuts: never two clusters, none left."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.worker.clusters.scripted import ORPHANED_S, ScriptedClouds
from tests.worker.clusters.ticking import MAX_ACTIONS, CutOff, tick
from worker.clusters import transitions
from worker.clusters.decide import TerminateCluster
from worker.clusters.view import ClusterState, ClusterView
from worker.deadlines import LAUNCH_GRACE
from worker.skypilot.port import JobState


class ClustersOfARun(RuleBasedStateMachine):
    """A run whose attempts get a cluster each, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.clouds = ScriptedClouds()
        self.rows: list[ClusterView] = []
        self.downed: set[str] = set()

    @initialize()
    def first(self) -> None:
        self.next_attempt()

    @property
    def row(self) -> ClusterView:
        return self.rows[-1]

    def commit(self, view: ClusterView) -> None:
        if view.cause is not None:
            # The attempt ends with the cluster.
            view = replace(view, is_needed=False)
        index = next(i for i, row in enumerate(self.rows) if row.name == view.name)
        # What other writers own is not a tick's to write.
        theirs = self.rows[index]
        self.rows[index] = replace(
            transitions.begin(view),
            is_needed=view.is_needed and theirs.is_needed,
            node_heartbeat_at=theirs.node_heartbeat_at,
        )

    @rule()
    @precondition(lambda self: not self.row.is_needed and len(self.rows) < 4)
    def next_attempt(self) -> None:
        number = len(self.rows) + 1
        self.rows.append(ClusterView(name=f"hc-run-{number}", job_name=f"att_{number}"))

    @rule(cut_after=st.integers(0, MAX_ACTIONS), which=st.integers(0, 3))
    def step(self, cut_after: int, which: int) -> None:
        index = min(which, len(self.rows) - 1)
        before = [row for row in self.rows[:index] if row.state is not ClusterState.TERMINATED]
        view = replace(self.rows[index], has_predecessor=bool(before))
        open_before = self.clouds.under_way(view.name)
        launched = self.clouds.num_launches
        try:
            taken = tick(view, self.clouds, self.commit, cut_after)
        except CutOff:
            taken = []
        if self.clouds.num_launches > launched:
            assert not before, "launched while an earlier cluster was not gone"
            assert self.clouds.num_launches == launched + 1
            listed = [r for r in self.clouds.requests if r.name == view.name]
            assert len(listed) <= 1 or open_before == 0
        if any(isinstance(action, TerminateCluster) for action in taken):
            self.downed.add(view.name)

    @rule(seconds=st.sampled_from([1.0, 3.0, 15.0, 40.0, 130.0]))
    def wait(self, seconds: float) -> None:
        self.clouds.pass_time(seconds)

    @rule()
    def sweep(self) -> None:
        if self.clouds.is_away:
            return
        looked = self.clouds.list_clusters() if not self.clouds.loses_answers else None
        if looked is not None:
            for index, row in enumerate(self.rows):
                if row.state is ClusterState.RUNNING:
                    found = looked.get(row.name)
                    self.rows[index] = transitions.apply_sweep(row, found, self.clouds.now)

    @rule()
    def hear_the_node(self) -> None:
        if self.row.name in self.clouds.clusters:
            self.rows[-1] = replace(self.row, node_heartbeat_at=self.clouds.now)

    @rule(is_away=st.booleans())
    def come_and_go(self, is_away: bool) -> None:
        self.clouds.is_away = is_away

    @rule(loses=st.booleans())
    def lose_answers(self, loses: bool) -> None:
        self.clouds.loses_answers = loses

    @rule(fails=st.booleans(), seconds=st.sampled_from([5.0, 40.0, 200.0]))
    def change_the_weather(self, fails: bool, seconds: float) -> None:
        self.clouds.fails_launches, self.clouds.launch_s = fails, seconds

    @rule()
    def restart_the_server(self) -> None:
        self.clouds.restart_server()

    @rule()
    def preempt(self) -> None:
        self.clouds.preempt(self.row.name)

    @rule(is_broken=st.booleans())
    def break_or_mend(self, *, is_broken: bool) -> None:
        self.clouds.broken = set(self.clouds.clusters) if is_broken else set()

    @rule(state=st.sampled_from([JobState.FAILED, JobState.SUCCEEDED]))
    def end_the_job(self, state: JobState) -> None:
        self.clouds.end_jobs(self.row.name, state)

    @rule()
    def cancel(self) -> None:
        self.rows[-1] = replace(self.row, is_needed=False)

    @invariant()
    def at_most_one_cluster(self) -> None:
        assert len(self.clouds.clusters) <= 1, self.clouds.clusters

    @invariant()
    def at_most_one_launch_under_way(self) -> None:
        assert self.clouds.max_open <= 1

    @invariant()
    def gone_means_gone(self) -> None:
        gone = {row.name for row in self.rows if row.state is ClusterState.TERMINATED}
        assert gone.isdisjoint(self.clouds.clusters)
        assert not any(self.clouds.under_way(name) for name in gone)

    def teardown(self) -> None:
        """Whatever happened: once nobody wants it and the clouds answer, nothing is left."""
        self.clouds.is_away = self.clouds.loses_answers = False
        self.rows = [replace(row, is_needed=False) for row in self.rows]
        # Until nothing is left, and for a few rounds more, in which nothing begins anew.
        num_over = 0
        for _ in range(120):
            num_over += self._is_over()
            if num_over > 3:
                break
            for row in list(self.rows):
                tick(row, self.clouds, self.commit)
            self.clouds.pass_time(5.0)
        assert [row.state for row in self.rows] == [ClusterState.TERMINATED] * len(self.rows)
        assert self.clouds.clusters == {}
        assert not [r for r in self.clouds.requests if r.state.value == "working"]

    def _is_over(self) -> bool:
        """Nothing is left, and no launch is at work, not even of a server that is gone."""
        launches = [*self.clouds.requests, *self.clouds.orphans]
        states = {row.state for row in self.rows}
        return (
            states == {ClusterState.TERMINATED}
            and not self.clouds.clusters
            and not any(launch.state.value == "working" for launch in launches)
        )


TestClustersOfARun = ClustersOfARun.TestCase
TestClustersOfARun.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_the_oldest_orphan_of_the_histories_ends_within_the_grace() -> None:
    assert timedelta(seconds=ORPHANED_S) < LAUNCH_GRACE
