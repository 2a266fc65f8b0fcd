"""What is done next about a cluster: each row of the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.clusters.scripted import FACTS, START
from worker.clusters import transitions
from worker.clusters.decide import (
    CAUSES,
    MAX_LAUNCHES,
    AdoptLaunch,
    CancelDuplicates,
    ForgetRequest,
    GetCluster,
    GetLaunch,
    GetTerminationFault,
    LaunchCluster,
    ListJobs,
    ListLaunches,
    MarkRunning,
    MarkTerminated,
    MarkTerminating,
    RecordLaunch,
    TerminateCluster,
    Wait,
    decide,
    is_termination_overdue,
)
from worker.clusters.view import (
    Cause,
    ClusterObserved,
    ClusterState,
    ClusterView,
    JobsListed,
    LaunchRecorded,
    Observations,
    TerminationFault,
    TerminationRequested,
)
from worker.deadlines import (
    JOBS_POLL_INTERVAL,
    LAUNCH_GRACE,
    NODE_SILENCE,
    RECHECK_LATER,
    RECHECK_SOON,
    TERMINATION_OVERDUE,
    UNHEALTHY_GRACE,
)
from worker.skypilot.port import (
    CloudCluster,
    CloudError,
    CloudJob,
    CloudState,
    ErrorKind,
    JobState,
    RequestReport,
    RequestState,
)

NAME, JOB = "hc-abcd-0123456789-1", "att_1"
WANTED = ClusterView(name=NAME, job_name=JOB)
LAUNCHING = replace(
    WANTED,
    state=ClusterState.PROVISIONING,
    request_id="r1",
    launch_requested_at=START,
    launch_tries=1,
)
UP = replace(
    LAUNCHING,
    state=ClusterState.RUNNING,
    job_id=1,
    cluster=FACTS,
    running_at=START,
    node_heartbeat_at=START,
)
ENDING = replace(UP, state=ClusterState.TERMINATING, is_needed=False)
SEEN = CloudCluster(name=NAME, state=CloudState.UP, cluster=FACTS)
LONG_AFTER = START + timedelta(hours=1)


def job(number: int = 1, state: JobState = JobState.RUNNING, name: str = JOB) -> CloudJob:
    return CloudJob(id=number, name=name, state=state)


def observing(view: ClusterView, **known: object) -> ClusterView:
    return replace(view, observations=Observations(**known))  # type: ignore[arg-type]


@pytest.mark.parametrize("state", list(ClusterState))
def test_unreachable_changes_nothing(state: ClusterState) -> None:
    view = observing(replace(UP, state=state), is_unreachable=True)
    pause = RECHECK_LATER if state is ClusterState.RUNNING else RECHECK_SOON
    assert decide(view, LONG_AFTER) == Wait(pause, "SkyPilot's API server does not answer")
    said = observing(view, is_unreachable=True, unreachable_reason="refused")
    why = "SkyPilot's API server does not answer: refused"
    assert decide(said, LONG_AFTER) == Wait(pause, why)


ASKED = replace(WANTED, launch_requested_at=START - LAUNCH_GRACE, launch_tries=1)
"""It was asked for once, and nobody answered in time."""


class TestWanted:
    def test_what_was_never_asked_for_is_launched_without_looking(self) -> None:
        assert decide(WANTED, START) == RecordLaunch()
        recorded = transitions.apply_observation(WANTED, LaunchRecorded(), START)
        assert decide(recorded, START) == LaunchCluster()

    def test_asks_in_an_order_in_which_a_launch_that_ends_is_not_missed(self) -> None:
        assert decide(ASKED, START) == ListLaunches()
        assert decide(observing(ASKED, launches=()), START) == GetCluster()
        assert (
            decide(observing(ASKED, launches=(), observed_cluster=ClusterObserved(SEEN)), START)
            == ListJobs()
        )

    def test_a_cluster_whose_node_was_heard_is_up_without_asking_for_its_job(self) -> None:
        heard = replace(WANTED, launch_requested_at=START, launch_tries=1, node_heartbeat_at=START)
        found = observing(heard, launches=(), observed_cluster=ClusterObserved(SEEN))
        assert decide(found, START) == MarkRunning(None, FACTS)

    def test_adopts_the_oldest_launch_that_is_under_way(self) -> None:
        assert decide(observing(ASKED, launches=("r7", "r8")), START) == AdoptLaunch("r7")

    def test_adopts_a_cluster_that_has_its_job(self) -> None:
        jobs = (job(1, name="another"), job(3), job(2, JobState.CANCELLED))
        view = observing(ASKED, launches=(), observed_cluster=ClusterObserved(SEEN), jobs=jobs)
        assert decide(view, START) == MarkRunning(3, FACTS)

    def test_launches_onto_a_cluster_that_has_not_its_job(self) -> None:
        view = observing(
            ASKED,
            launches=(),
            observed_cluster=ClusterObserved(SEEN),
            jobs=(job(1, name="another"),),
        )
        assert decide(view, START) == RecordLaunch()

    def test_launches_onto_a_cluster_that_is_not_up_to_tell_of_its_job(self) -> None:
        view = observing(
            ASKED, launches=(), observed_cluster=ClusterObserved(SEEN), are_jobs_unavailable=True
        )
        assert decide(view, START) == RecordLaunch()

    def test_is_recorded_before_it_is_called(self) -> None:
        view = observing(ASKED, launches=(), observed_cluster=ClusterObserved(None))
        assert decide(view, START) == RecordLaunch()
        assert decide(
            observing(
                view, launches=(), observed_cluster=ClusterObserved(None), is_launch_recorded=True
            ),
            START,
        ) == (LaunchCluster())

    def test_a_launch_that_nobody_answered_is_waited_for(self) -> None:
        asked = replace(WANTED, launch_requested_at=START, launch_tries=1)
        view = observing(asked, launches=(), observed_cluster=ClusterObserved(None))
        almost = START + LAUNCH_GRACE - timedelta(seconds=1)
        assert decide(view, almost) == Wait(
            RECHECK_SOON, "an earlier launch request may still take effect"
        )
        assert decide(view, START + LAUNCH_GRACE) == RecordLaunch()

    def test_launches_that_are_lost_again_and_again_end_it(self) -> None:
        asked = replace(WANTED, launch_requested_at=START, launch_tries=MAX_LAUNCHES)
        end = decide(
            observing(asked, launches=(), observed_cluster=ClusterObserved(None)), LONG_AFTER
        )
        assert isinstance(end, MarkTerminating)
        assert end.cause is Cause.LAUNCH_FAILED

    def test_waits_for_an_earlier_cluster_of_the_run(self) -> None:
        view = replace(WANTED, has_predecessor=True)
        assert isinstance(decide(view, START), Wait)

    @pytest.mark.parametrize("kind", list(ErrorKind))
    def test_a_refused_launch_ends_it_with_its_cause(self, kind: ErrorKind) -> None:
        report = RequestReport(state=RequestState.FAILED, error=CloudError(kind, "no"))
        assert decide(observing(WANTED, launch_report=report), START) == MarkTerminating(
            CAUSES[kind], "no"
        )


class TestLaunching:
    def test_asks_how_the_request_stands(self) -> None:
        assert decide(LAUNCHING, START) == GetLaunch("r1")

    def test_a_finished_launch_is_up(self) -> None:
        report = RequestReport(state=RequestState.DONE, job_id=4, cluster=FACTS)
        assert decide(observing(LAUNCHING, launch_report=report), START) == MarkRunning(4, FACTS)

    def test_a_forgotten_request_is_looked_for_by_name(self) -> None:
        report = RequestReport(state=RequestState.FORGOTTEN)
        view = observing(LAUNCHING, launch_report=report)
        assert decide(view, START) == ForgetRequest()
        forgotten = transitions.apply_transition(view, ForgetRequest(), LONG_AFTER)
        assert (forgotten.state, forgotten.request_id) == (ClusterState.PENDING, None)
        assert decide(forgotten, LONG_AFTER) == ListLaunches()
        nothing = observing(forgotten, launches=(), observed_cluster=ClusterObserved(None))
        assert isinstance(decide(nothing, LONG_AFTER), Wait), "its process may have outlived it"

    def test_a_failed_launch_without_a_word_ends_it_too(self) -> None:
        report = RequestReport(state=RequestState.FAILED)
        end = decide(observing(LAUNCHING, launch_report=report), START)
        assert isinstance(end, MarkTerminating)
        assert end.cause is Cause.LAUNCH_FAILED

    def test_a_row_without_its_request_goes_by_the_name(self) -> None:
        assert decide(replace(LAUNCHING, request_id=None), START) == ForgetRequest()


class TestUp:
    def test_a_node_that_is_heard_is_let_alone(self) -> None:
        unseen = replace(UP, missed_polls=9)
        assert decide(unseen, START) == Wait(RECHECK_LATER, None)

    def test_gone_twice_and_silent_is_lost(self) -> None:
        silent = START + NODE_SILENCE
        assert isinstance(decide(replace(UP, missed_polls=1, seen_at=silent), silent), Wait)
        end = decide(replace(UP, missed_polls=2, seen_at=silent), silent)
        assert isinstance(end, MarkTerminating)
        assert end.cause is Cause.CLUSTER_LOST

    def test_a_stopped_cluster_is_lost_after_a_while(self) -> None:
        stopped = replace(UP, unhealthy_since=START, observed_state=CloudState.STOPPED)
        silent, after = START + NODE_SILENCE, START + UNHEALTHY_GRACE
        assert isinstance(decide(replace(stopped, seen_at=silent), silent), Wait)
        end = decide(replace(stopped, seen_at=after), after)
        assert isinstance(end, MarkTerminating)
        assert end.cause is Cause.CLUSTER_LOST

    @pytest.mark.parametrize("seen", [{"missed_polls": 2}, {"unhealthy_since": START}])
    def test_what_a_sweep_saw_long_ago_or_before_the_node_was_heard_ends_nothing(
        self, seen: dict[str, Any]
    ) -> None:
        """The clouds were away since: one blip of theirs is no proof hours later."""
        told = replace(UP, seen_at=START, **seen)
        never_heard = replace(told, node_heartbeat_at=None)
        assert decide(never_heard, START + UNHEALTHY_GRACE) == ListJobs()
        heard = replace(told, node_heartbeat_at=LONG_AFTER)
        assert decide(heard, LONG_AFTER + NODE_SILENCE) == ListJobs()
        moments = timedelta(seconds=9)
        before = replace(heard, seen_at=LONG_AFTER - moments)
        assert decide(before, LONG_AFTER + NODE_SILENCE) == ListJobs()
        after = replace(heard, seen_at=LONG_AFTER + moments)
        assert isinstance(decide(after, LONG_AFTER + NODE_SILENCE), MarkTerminating)

    def test_a_silent_node_is_asked_for_its_job_and_a_live_one_is_waited_for(self) -> None:
        silent = START + NODE_SILENCE
        assert decide(UP, silent) == ListJobs()
        assert isinstance(decide(observing(UP, jobs=(job(),)), silent), Wait)

    @pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
    def test_a_job_that_is_over_without_a_word_ends_it(self, state: JobState) -> None:
        end = decide(observing(UP, jobs=(job(state=state),)), START + NODE_SILENCE)
        assert end == MarkTerminating(
            Cause.JOB_ENDED, f"its job is {state.value}, and the node reported no end"
        )

    def test_a_cluster_without_its_job_ends_when_it_has_said_so_twice(self) -> None:
        first = START + NODE_SILENCE
        once = transitions.apply_observation(UP, JobsListed(()), first)
        assert decide(once, first) == Wait(
            RECHECK_LATER, "its job does not exist: it is queried once more"
        )
        twice = transitions.apply_observation(
            transitions.begin(once), JobsListed((job(name="another"),)), first + JOBS_POLL_INTERVAL
        )
        end = decide(twice, first + JOBS_POLL_INTERVAL)
        assert isinstance(end, MarkTerminating)
        assert "its job does not exist" in end.message

    def test_answers_without_the_job_count_in_a_row_while_nothing_is_heard(self) -> None:
        once = transitions.apply_observation(UP, JobsListed(()), START + NODE_SILENCE)
        assert (
            transitions.apply_observation(once, JobsListed((job(),)), LONG_AFTER).polls_without_job
            == 0
        )
        assert (
            transitions.apply_observation(once, JobsListed(None), LONG_AFTER).polls_without_job == 1
        )
        heard = replace(once, node_heartbeat_at=START + NODE_SILENCE + JOBS_POLL_INTERVAL)
        assert (
            transitions.apply_observation(heard, JobsListed(()), LONG_AFTER).polls_without_job == 1
        )

    def test_a_cluster_that_is_not_up_to_tell_of_its_job_is_left_to_the_sweeps(self) -> None:
        silent = START + NODE_SILENCE
        asked = transitions.apply_observation(UP, JobsListed(None), silent)
        assert isinstance(decide(asked, silent), Wait)
        assert isinstance(
            decide(transitions.apply_observation(asked, JobsListed(None), LONG_AFTER), LONG_AFTER),
            Wait,
        )

    def test_a_node_that_could_not_be_set_up_is_no_lost_cluster(self) -> None:
        failed = observing(UP, jobs=(job(1, JobState.SETUP_FAILED),))
        end = decide(failed, START + NODE_SILENCE)
        assert isinstance(end, MarkTerminating)
        assert end.cause is Cause.SETUP_FAILED

    @pytest.mark.parametrize(
        ("state", "why"),
        [
            (JobState.WAITING, "the job has not started"),
            (JobState.SETTING_UP, "the node's environment is being set up"),
            (JobState.RUNNING, "the job is running, but its node sends no heartbeat"),
        ],
    )
    def test_what_a_silent_nodes_job_does_is_told_until_it_is_asked_for_again(
        self, state: JobState, why: str
    ) -> None:
        asked = transitions.apply_observation(
            UP, JobsListed((job(1, state),)), START + NODE_SILENCE
        )
        assert decide(asked, START + NODE_SILENCE) == Wait(RECHECK_LATER, why)
        later = transitions.begin(replace(asked, status_reason=why))
        assert decide(later, START + NODE_SILENCE + RECHECK_LATER) == Wait(RECHECK_LATER, why)

    def test_jobs_are_not_asked_for_at_every_tick(self) -> None:
        silent = START + NODE_SILENCE
        asked = replace(UP, jobs_requested_at=silent)
        assert isinstance(decide(asked, silent + timedelta(seconds=59)), Wait)
        assert decide(asked, silent + timedelta(seconds=60)) == ListJobs()

    def test_all_but_the_first_live_job_are_cancelled(self) -> None:
        jobs = (job(1, JobState.CANCELLED), job(2), job(3, JobState.WAITING), job(4, name="other"))
        assert decide(observing(UP, jobs=jobs), START) == CancelDuplicates((3,))
        done = observing(UP, jobs=jobs, are_duplicates_cancelled=True)
        assert isinstance(decide(done, START), Wait)

    def test_a_cluster_that_was_launched_twice_is_looked_at_once(self) -> None:
        twice = replace(UP, launch_tries=2)
        assert decide(twice, START) == ListJobs()
        assert isinstance(decide(replace(twice, jobs_requested_at=START), START), Wait)


class TestEnds:
    @pytest.mark.parametrize("view", [WANTED, LAUNCHING, UP], ids=lambda view: view.state.value)
    def test_what_is_not_wanted_ends_without_a_cause(self, view: ClusterView) -> None:
        end = decide(replace(view, is_needed=False), START)
        assert end == MarkTerminating(None, "it is no longer needed")

    @pytest.mark.parametrize("view", [WANTED, LAUNCHING, UP], ids=lambda view: view.state.value)
    def test_the_wall_clock_ends_it(self, view: ClusterView) -> None:
        end = decide(replace(view, wall_limit_at=START), START)
        assert isinstance(end, MarkTerminating)
        assert end.cause is Cause.WALL_CLOCK_LIMIT

    def test_it_is_told_then_looked_for_then_gone(self) -> None:
        assert decide(ENDING, START) == TerminateCluster()
        told = observing(
            replace(ENDING, termination_requested_at=START), is_termination_requested=True
        )
        assert isinstance(decide(told, START), Wait), "machines take their time to go"
        later = replace(ENDING, termination_requested_at=START)
        assert decide(later, START) == ListLaunches()
        asked = observing(later, launches=())
        assert decide(asked, START) == GetCluster()
        there = replace(
            asked, observations=replace(asked.observations, observed_cluster=ClusterObserved(SEEN))
        )
        assert decide(there, START) == Wait(RECHECK_LATER, "it still exists")
        not_there = replace(
            asked, observations=replace(asked.observations, observed_cluster=ClusterObserved(None))
        )
        assert decide(not_there, START) == MarkTerminated()

    def test_a_launch_under_way_is_waited_for(self) -> None:
        told = observing(replace(ENDING, termination_requested_at=START), launches=("r2",))
        assert isinstance(decide(told, START), Wait)

    def test_what_is_still_there_is_told_again(self) -> None:
        told = replace(ENDING, termination_requested_at=START)
        assert decide(told, START + timedelta(seconds=59)) == ListLaunches()
        assert decide(told, START + timedelta(seconds=60)) == TerminateCluster()

    def test_what_is_told_again_is_looked_for_at_once(self) -> None:
        told = observing(
            replace(ENDING, termination_requested_at=START, terminating_at=START),
            is_termination_requested=True,
        )
        assert isinstance(decide(told, START + timedelta(seconds=59)), Wait)
        assert decide(told, START + timedelta(seconds=60)) == ListLaunches()

    def test_of_what_is_still_there_it_is_asked_why(self) -> None:
        told = replace(ENDING, termination_requested_at=START, termination_request_id="r9")
        there = observing(told, launches=(), observed_cluster=ClusterObserved(SEEN))
        assert decide(there, START) == GetTerminationFault("r9")
        known = transitions.apply_observation(there, TerminationFault("access denied"), START)
        assert decide(known, START) == Wait(RECHECK_LATER, "it still exists: access denied")
        silent = transitions.apply_observation(there, TerminationFault(None), START)
        assert decide(silent, START) == Wait(RECHECK_LATER, "it still exists")

    def test_telling_it_again_keeps_what_was_said_of_the_time_before(self) -> None:
        again = transitions.apply_observation(
            replace(ENDING, status_reason="it still exists: no"),
            TerminationRequested("r9"),
            START,
        )
        assert again.termination_request_id == "r9"
        assert decide(again, START) == Wait(RECHECK_LATER, "it still exists: no")

    def test_it_is_stuck_ten_minutes_after_it_was_to_end_until_that_was_told(self) -> None:
        ending = transitions.apply_transition(UP, MarkTerminating(None, "over"), START)
        assert not is_termination_overdue(
            ending, START + TERMINATION_OVERDUE - timedelta(seconds=1)
        )
        assert is_termination_overdue(ending, START + TERMINATION_OVERDUE)
        assert not is_termination_overdue(
            replace(ending, is_end_warned=True), START + TERMINATION_OVERDUE
        )
        assert not is_termination_overdue(
            transitions.apply_transition(ending, MarkTerminated(), START),
            START + TERMINATION_OVERDUE,
        )

    def test_what_was_never_asked_for_is_gone_at_once(self) -> None:
        assert decide(replace(WANTED, state=ClusterState.TERMINATING), START) == MarkTerminated()

    def test_a_launch_that_nobody_answered_may_still_come(self) -> None:
        asked = replace(
            WANTED,
            state=ClusterState.TERMINATING,
            launch_requested_at=START,
            termination_requested_at=START,
        )
        view = observing(
            asked,
            is_termination_requested=True,
            launches=(),
            observed_cluster=ClusterObserved(None),
        )
        assert isinstance(decide(view, START), Wait)
        assert decide(view, START + LAUNCH_GRACE) == MarkTerminated()

    def test_a_launch_whose_request_is_forgotten_may_still_come(self) -> None:
        view = replace(LAUNCHING, state=ClusterState.TERMINATING, is_needed=False)
        assert decide(view, LONG_AFTER) == TerminateCluster(), "before anything is asked"
        told = observing(
            replace(view, termination_requested_at=LONG_AFTER), is_termination_requested=True
        )
        assert decide(told, LONG_AFTER) == GetLaunch("r1")
        known = observing(
            told,
            is_termination_requested=True,
            launch_report=RequestReport(state=RequestState.FORGOTTEN),
        )
        assert decide(known, LONG_AFTER) == ForgetRequest()
        forgotten = transitions.apply_transition(known, ForgetRequest(), LONG_AFTER)
        assert forgotten.state is ClusterState.TERMINATING
        assert forgotten.launch_requested_at == LONG_AFTER


def test_what_sweeps_saw_before_the_node_was_heard_does_not_count() -> None:
    unseen = transitions.apply_sweep(UP, None, START)
    heard = replace(unseen, node_heartbeat_at=START + RECHECK_LATER)
    assert transitions.apply_sweep(heard, None, LONG_AFTER).missed_polls == 1
    coming = CloudCluster(name=NAME, state=CloudState.INIT)
    unsound = replace(
        transitions.apply_sweep(UP, coming, START), node_heartbeat_at=START + RECHECK_LATER
    )
    assert unsound.unhealthy_since == START
    assert transitions.apply_sweep(unsound, coming, LONG_AFTER).unhealthy_since == LONG_AFTER


def test_sweeps_count_what_they_did_not_find_and_since_when_it_is_unsound() -> None:
    once = transitions.apply_sweep(UP, None, START)
    twice = transitions.apply_sweep(once, None, START)
    assert (once.missed_polls, twice.missed_polls, twice.observed_state) == (1, 2, None)
    stopped = CloudCluster(name=NAME, state=CloudState.STOPPED)
    there = transitions.apply_sweep(
        transitions.apply_sweep(twice, stopped, START), stopped, LONG_AFTER
    )
    assert (there.missed_polls, there.unhealthy_since) == (0, START)
    assert transitions.apply_sweep(there, SEEN, LONG_AFTER).unhealthy_since is None
