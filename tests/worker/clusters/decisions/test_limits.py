"""The moments at which a decision changes, what is waited for until then, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from api.runs.deadlines import API_UNREACHABLE_GRACE
from tests.worker.clusters.decisions.test_decide import (
    ASKED,
    ENDING,
    LAUNCHING,
    LONG_AFTER,
    SEEN,
    UP,
    WANTED,
    job,
    observing,
)
from tests.worker.clusters.scripted import FACTS, START
from worker.clusters.decide import (
    MAX_LAUNCHES,
    Action,
    CancelDuplicates,
    ForgetRequest,
    GetLaunch,
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
from worker.clusters.view import Cause, ClusterObserved, ClusterState, ClusterView
from worker.deadlines import (
    JOBS_POLL_INTERVAL,
    LAUNCH_GRACE,
    NO_RECHECK,
    NODE_SILENCE,
    RECHECK_LATER,
    RECHECK_SOON,
    SWEEP_FRESHNESS,
    TERMINATION_OVERDUE,
    TERMINATION_RETRY,
    UNHEALTHY_GRACE,
)
from worker.skypilot.port import CloudError, ErrorKind, JobState, RequestReport, RequestState

MOMENT = timedelta(seconds=1)
SILENT = START + NODE_SILENCE
NOT_THERE = ClusterObserved(None)
IN_FLIGHT = Wait(RECHECK_SOON, "an earlier launch request may still take effect")
NO_API = Wait(
    RECHECK_LATER, "no API process is alive to give its nodes the plan: it is not launched yet"
)


def ends(action: Action, cause: Cause | None, words: str) -> bool:
    return isinstance(action, MarkTerminating) and action.cause is cause and words in action.message


def searched(view: ClusterView, **known: Any) -> ClusterView:
    """Its name was searched for, and nothing found."""
    return observing(view, **{"launches": (), "observed_cluster": NOT_THERE} | known)


class TestLaunch:
    def test_an_earlier_cluster_is_looked_at_again_soon(self) -> None:
        assert decide(replace(WANTED, has_predecessor=True), START) == Wait(
            RECHECK_SOON, "an earlier cluster of the run is not terminated yet"
        )

    def test_only_the_first_launch_is_called_without_a_search(self) -> None:
        recorded = replace(WANTED, launch_requested_at=START)
        first = observing(replace(recorded, launch_tries=1), is_launch_recorded=True)
        assert decide(first, START) == LaunchCluster()
        assert decide(observing(first), START) == ListLaunches()
        second = observing(replace(recorded, launch_tries=2), is_launch_recorded=True)
        assert decide(second, START) == ListLaunches()

    def test_a_report_without_an_error_ends_nothing(self) -> None:
        working = RequestReport(state=RequestState.WORKING)
        assert decide(observing(WANTED, launch_report=working), START) == RecordLaunch()

    @pytest.mark.parametrize(("tries", "is_over"), [(MAX_LAUNCHES - 1, False), (5, True)])
    def test_the_fifth_lost_launch_is_the_last(self, tries: int, is_over: bool) -> None:
        action = decide(searched(replace(ASKED, launch_tries=tries)), START)
        words = "launched 5 times, and every launch was lost"
        assert ends(action, Cause.LAUNCH_FAILED, words) is is_over
        assert (action == RecordLaunch()) is not is_over

    def test_without_an_api_nothing_new_is_launched(self) -> None:
        assert decide(replace(WANTED, is_api_unreachable=True), START) == NO_API
        assert decide(searched(replace(ASKED, is_api_unreachable=True)), START) == NO_API

    def test_without_an_api_machines_that_exist_are_taken_over(self) -> None:
        lost = replace(ASKED, is_api_unreachable=True)
        there = {"observed_cluster": ClusterObserved(SEEN), "jobs": ()}
        assert decide(searched(lost, **there), START) == RecordLaunch()
        assert decide(searched(lost, **there | {"jobs": (job(),)}), START) == MarkRunning(1, FACTS)

    def test_a_launch_with_a_request_is_not_in_flight(self) -> None:
        just_now = replace(ASKED, launch_requested_at=START)
        assert decide(searched(just_now), START) == IN_FLIGHT
        assert decide(searched(replace(just_now, request_id="r1")), START) == RecordLaunch()

    def test_a_launch_in_progress_is_looked_at_again_soon(self) -> None:
        working = observing(LAUNCHING, launch_report=RequestReport(state=RequestState.WORKING))
        assert decide(working, START) == Wait(RECHECK_SOON, "the launch is in progress")

    def test_a_failed_launch_ends_with_its_error_or_with_none(self) -> None:
        error = CloudError(ErrorKind.NO_CAPACITY, "sold out")
        failed = RequestReport(state=RequestState.FAILED, error=error)
        action = decide(observing(LAUNCHING, launch_report=failed), START)
        assert action == MarkTerminating(Cause.NO_CAPACITY, "sold out")
        action = decide(
            observing(LAUNCHING, launch_report=RequestReport(state=RequestState.FAILED)), START
        )
        assert ends(action, Cause.LAUNCH_FAILED, "without a reason")


class TestTimeLimit:
    @pytest.mark.parametrize("view", [WANTED, LAUNCHING, UP], ids=lambda view: view.state.value)
    def test_it_ends_at_its_limit_and_not_before(self, view: ClusterView) -> None:
        limited = replace(view, wall_limit_at=START + MOMENT)
        assert not isinstance(decide(limited, START), MarkTerminating)
        for now in (START + MOMENT, LONG_AFTER):
            assert ends(decide(limited, now), Cause.WALL_CLOCK_LIMIT, "max_hours")


class TestSilence:
    @pytest.mark.parametrize(
        ("running", "heartbeat", "silent_at"),
        [
            (START, None, SILENT),
            (START, START - MOMENT, SILENT),
            (START, START + MOMENT, SILENT + MOMENT),
            (None, START, SILENT),
            (None, None, START),
        ],
    )
    def test_silence_counts_from_the_newest_sign_of_life(
        self, running: datetime | None, heartbeat: datetime | None, silent_at: datetime
    ) -> None:
        view = replace(UP, running_at=running, node_heartbeat_at=heartbeat)
        assert decide(view, silent_at) == ListJobs()
        if running or heartbeat:
            assert decide(view, silent_at - MOMENT) == Wait(RECHECK_LATER, None)

    def test_duplicates_are_looked_for_once_after_a_second_launch(self) -> None:
        heard = replace(UP, launch_tries=2)
        assert decide(heard, START) == ListJobs()
        done = replace(heard, jobs_requested_at=START)
        assert decide(done, START) == Wait(RECHECK_LATER, None)
        assert decide(replace(done, launch_tries=1), START) == Wait(RECHECK_LATER, None)

    def test_all_live_jobs_but_the_oldest_are_cancelled(self) -> None:
        jobs = (job(9), job(2, JobState.WAITING), job(1, JobState.FAILED), job(5))
        assert decide(observing(UP, jobs=jobs), START) == CancelDuplicates((5, 9))

    @pytest.mark.parametrize(
        ("seen", "heartbeat", "is_used"),
        [
            (SILENT, START, True),
            (SILENT, None, True),
            (SILENT - SWEEP_FRESHNESS + MOMENT, None, True),
            (SILENT - SWEEP_FRESHNESS, None, False),
            (START, START, False),
            (START + MOMENT, START, True),
            (None, None, False),
        ],
    )
    def test_a_sweep_is_used_where_it_is_recent_and_newer_than_the_heartbeat(
        self, seen: datetime | None, heartbeat: datetime | None, is_used: bool
    ) -> None:
        view = replace(UP, missed_polls=2, seen_at=seen, node_heartbeat_at=heartbeat)
        action = decide(view, SILENT)
        assert ends(action, Cause.CLUSTER_LOST, "did not list the cluster 2 times") is is_used
        assert (action == ListJobs()) is not is_used

    def test_one_missed_sweep_and_a_cluster_that_is_not_up_are_waited_for(self) -> None:
        swept = replace(UP, seen_at=SILENT)
        assert decide(replace(swept, missed_polls=1), SILENT) == Wait(
            RECHECK_LATER, "the cloud did not list the cluster: it is queried once more"
        )
        unhealthy = replace(swept, unhealthy_since=SILENT - UNHEALTHY_GRACE)
        assert ends(decide(unhealthy, SILENT), Cause.CLUSTER_LOST, "stopped or broken")
        almost = replace(unhealthy, unhealthy_since=SILENT - UNHEALTHY_GRACE + MOMENT)
        assert decide(almost, SILENT) == Wait(
            RECHECK_LATER, "the cluster is not up: it may recover by itself"
        )
        assert decide(swept, SILENT) == ListJobs()


class TestJobs:
    def test_a_cluster_that_cannot_list_its_jobs_is_left_to_the_sweeps(self) -> None:
        view = observing(UP, are_jobs_unavailable=True)
        assert decide(view, SILENT) == Wait(
            RECHECK_LATER, "the cluster is not up to list its jobs: it may recover by itself"
        )

    def test_between_two_listings_it_is_said_what_the_last_one_showed(self) -> None:
        asked = replace(UP, jobs_requested_at=SILENT)
        almost = SILENT + JOBS_POLL_INTERVAL - MOMENT
        assert decide(asked, almost) == Wait(
            RECHECK_LATER, "its node sends no heartbeat: its job is checked again soon"
        )
        told = replace(asked, status_reason="the job has not started")
        assert decide(told, almost) == Wait(RECHECK_LATER, "the job has not started")
        assert decide(told, SILENT + JOBS_POLL_INTERVAL) == ListJobs()

    def test_a_live_job_counts_before_one_that_ended(self) -> None:
        jobs = (job(1, JobState.SETUP_FAILED), job(2, JobState.WAITING))
        assert decide(observing(UP, jobs=jobs), SILENT) == Wait(
            RECHECK_LATER, "the job has not started"
        )

    def test_of_jobs_that_ended_the_newest_counts(self) -> None:
        jobs = (job(1, JobState.FAILED), job(2, JobState.SETUP_FAILED))
        assert ends(decide(observing(UP, jobs=jobs), SILENT), Cause.SETUP_FAILED, "set-up")
        jobs = (job(1, JobState.SETUP_FAILED), job(2, JobState.FAILED))
        assert ends(decide(observing(UP, jobs=jobs), SILENT), Cause.JOB_ENDED, "failed")

    def test_a_job_that_is_missing_ends_the_cluster_at_the_second_listing(self) -> None:
        once, twice = (observing(replace(UP, polls_without_job=polls), jobs=()) for polls in (1, 2))
        assert decide(once, SILENT) == Wait(
            RECHECK_LATER, "its job does not exist: it is queried once more"
        )
        assert decide(twice, SILENT) == MarkTerminating(
            Cause.JOB_ENDED, "its job does not exist, and the node reported no end"
        )
        ended = observing(UP, jobs=(job(1, JobState.FAILED),))
        assert ends(decide(ended, SILENT), Cause.JOB_ENDED, "its job is failed")

    @pytest.mark.parametrize(
        ("heartbeat", "unreachable", "is_excused"),
        [
            (None, SILENT, True),
            (None, SILENT - API_UNREACHABLE_GRACE + MOMENT, True),
            (None, SILENT - API_UNREACHABLE_GRACE, False),
            (None, None, False),
            (START, SILENT, False),
        ],
    )
    def test_a_job_that_found_no_api_to_give_it_a_plan_is_excused(
        self, heartbeat: datetime | None, unreachable: datetime | None, is_excused: bool
    ) -> None:
        view = replace(UP, node_heartbeat_at=heartbeat, api_unreachable_at=unreachable)
        action = decide(observing(view, jobs=(job(1, JobState.FAILED),)), SILENT)
        assert ends(action, Cause.JOB_ENDED, "its job is failed: no API process") is is_excused
        assert ends(action, Cause.JOB_ENDED, "the node reported no end") is not is_excused


REQUESTED = replace(ENDING, termination_requested_at=START, terminating_at=START)


class TestTermination:
    @pytest.mark.parametrize(
        ("asked", "running", "is_gone"),
        [(None, None, True), (START, None, False), (None, START, False)],
    )
    def test_what_was_never_asked_for_needs_no_termination(
        self, asked: datetime | None, running: datetime | None, is_gone: bool
    ) -> None:
        view = replace(
            WANTED,
            state=ClusterState.TERMINATING,
            launch_requested_at=asked,
            running_at=running,
        )
        assert (decide(view, START) == MarkTerminated()) is is_gone
        assert (decide(view, START) == TerminateCluster()) is not is_gone

    def test_it_is_asked_for_once_within_a_tick_and_again_after_a_while(self) -> None:
        assert decide(REQUESTED, START + TERMINATION_RETRY - MOMENT) == ListLaunches()
        assert decide(REQUESTED, START + TERMINATION_RETRY) == TerminateCluster()
        done = observing(REQUESTED, is_termination_requested=True)
        assert decide(done, START + TERMINATION_RETRY) == ListLaunches()

    def test_the_first_request_ends_the_tick_for_a_cluster_that_ran(self) -> None:
        first = observing(REQUESTED, is_termination_requested=True)
        just_now = Wait(RECHECK_LATER, "termination was requested just now")
        assert decide(first, START + TERMINATION_RETRY - MOMENT) == just_now
        assert decide(replace(first, terminating_at=None), LONG_AFTER) == just_now
        assert decide(replace(first, terminating_at=None, status_reason="why"), START) == Wait(
            RECHECK_LATER, "why"
        )
        never_ran = replace(first, running_at=None, request_id=None)
        assert decide(never_ran, START) == ListLaunches()
        looked = observing(
            first, is_termination_requested=True, launches=(), observed_cluster=NOT_THERE
        )
        assert decide(looked, START) == MarkTerminated()

    def test_a_launch_in_progress_is_waited_for(self) -> None:
        assert decide(observing(REQUESTED, launches=("r2",)), START) == Wait(
            RECHECK_SOON, "a launch of it is still in progress"
        )

    def test_a_launch_without_an_answer_is_waited_for(self) -> None:
        lost = replace(REQUESTED, request_id=None)
        assert decide(searched(lost), START) == IN_FLIGHT
        much_later = replace(
            lost, termination_requested_at=START + LAUNCH_GRACE, terminating_at=START
        )
        assert decide(searched(much_later), START + LAUNCH_GRACE - MOMENT) == IN_FLIGHT
        assert decide(searched(much_later), START + LAUNCH_GRACE) == MarkTerminated()
        never = replace(lost, launch_requested_at=None)
        assert decide(searched(never), START) == MarkTerminated()

    @pytest.mark.parametrize("state", list(RequestState))
    def test_before_it_ran_its_launch_is_followed_to_an_end(self, state: RequestState) -> None:
        view = replace(REQUESTED, running_at=None)
        assert decide(view, START) == GetLaunch("r1")
        told = decide(observing(view, launch_report=RequestReport(state=state)), START)
        is_forgotten = state is RequestState.FORGOTTEN
        assert told == (ForgetRequest() if is_forgotten else ListLaunches())
        ran = observing(REQUESTED, launch_report=RequestReport(state=state))
        assert decide(ran, START) == ListLaunches()

    def test_what_still_exists_is_looked_at_later_without_a_fault_to_ask_for(self) -> None:
        there = observing(REQUESTED, launches=(), observed_cluster=ClusterObserved(SEEN))
        assert decide(there, START) == Wait(RECHECK_LATER, "it still exists")

    def test_what_is_gone_is_never_looked_at_again(self) -> None:
        gone = replace(ENDING, state=ClusterState.TERMINATED)
        assert decide(gone, LONG_AFTER) == Wait(NO_RECHECK, None)

    def test_only_what_is_terminating_is_overdue(self) -> None:
        late = START + TERMINATION_OVERDUE
        assert is_termination_overdue(REQUESTED, late)
        assert not is_termination_overdue(REQUESTED, late - MOMENT)
        assert not is_termination_overdue(replace(REQUESTED, terminating_at=None), late)
        assert not is_termination_overdue(replace(REQUESTED, is_end_warned=True), late)
        assert not is_termination_overdue(replace(REQUESTED, state=ClusterState.RUNNING), late)
