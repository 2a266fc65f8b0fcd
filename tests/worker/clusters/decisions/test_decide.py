"""What is done next about a cluster: each row of the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.clusters.scripted import FACTS, START
from worker.clusters import fold
from worker.clusters.base import (
    CloudError,
    ErrorKind,
    JobSighting,
    JobState,
    RequestReport,
    RequestState,
    SeenState,
    Sighting,
)
from worker.clusters.decide import (
    CAUSES,
    JOBS_EVERY,
    LATER,
    LAUNCH_GRACE,
    MAX_LAUNCHES,
    NODE_SILENT,
    SOON,
    STUCK,
    UNSOUND_ENOUGH,
    Adopt,
    AskDown,
    AskDownFault,
    AskJobs,
    AskLaunches,
    AskRequest,
    BecomeUp,
    BeGone,
    CancelDuplicates,
    End,
    Forget,
    Launch,
    Look,
    Record,
    Wait,
    decide,
    is_stuck,
)
from worker.clusters.view import (
    Cause,
    ClusterState,
    ClusterView,
    DownAsked,
    DownFault,
    Jobs,
    Known,
    Looked,
    Recorded,
)

NAME, JOB = "hc-abcd-0123456789-1", "att_1"
WANTED = ClusterView(name=NAME, job_name=JOB)
LAUNCHING = replace(
    WANTED,
    state=ClusterState.LAUNCHING,
    request_id="r1",
    launch_asked_at=START,
    launch_tries=1,
)
UP = replace(
    LAUNCHING, state=ClusterState.UP, job_id=1, cluster=FACTS, up_at=START, node_heard_at=START
)
ENDING = replace(UP, state=ClusterState.ENDING, is_wanted=False)
SEEN = Sighting(name=NAME, state=SeenState.UP, cluster=FACTS)
LONG_AFTER = START + timedelta(hours=1)


def job(number: int = 1, state: JobState = JobState.RUNNING, name: str = JOB) -> JobSighting:
    return JobSighting(id=number, name=name, state=state)


def knowing(view: ClusterView, **known: object) -> ClusterView:
    return replace(view, known=Known(**known))  # type: ignore[arg-type]


@pytest.mark.parametrize("state", list(ClusterState))
def test_unreachable_changes_nothing(state: ClusterState) -> None:
    view = knowing(replace(UP, state=state), is_unreachable=True)
    pause = LATER if state is ClusterState.UP else SOON
    assert decide(view, LONG_AFTER) == Wait(pause, "the clouds' API server does not answer")
    said = knowing(view, is_unreachable=True, why_unreachable="refused")
    why = "the clouds' API server does not answer: refused"
    assert decide(said, LONG_AFTER) == Wait(pause, why)


ASKED = replace(WANTED, launch_asked_at=START - LAUNCH_GRACE, launch_tries=1)
"""It was asked for once, and nobody answered in time."""


class TestWanted:
    def test_what_was_never_asked_for_is_launched_without_looking(self) -> None:
        assert decide(WANTED, START) == Record()
        recorded = fold.learn(WANTED, Recorded(), START)
        assert decide(recorded, START) == Launch()

    def test_asks_in_an_order_in_which_a_launch_that_ends_is_not_missed(self) -> None:
        assert decide(ASKED, START) == AskLaunches()
        assert decide(knowing(ASKED, launches=()), START) == Look()
        assert decide(knowing(ASKED, launches=(), looked=Looked(SEEN)), START) == AskJobs()

    def test_a_cluster_whose_node_was_heard_is_up_without_asking_for_its_job(self) -> None:
        heard = replace(WANTED, launch_asked_at=START, launch_tries=1, node_heard_at=START)
        found = knowing(heard, launches=(), looked=Looked(SEEN))
        assert decide(found, START) == BecomeUp(None, FACTS)

    def test_adopts_the_oldest_launch_that_is_under_way(self) -> None:
        assert decide(knowing(ASKED, launches=("r7", "r8")), START) == Adopt("r7")

    def test_adopts_a_cluster_that_has_its_job(self) -> None:
        jobs = (job(1, name="another"), job(3), job(2, JobState.CANCELLED))
        view = knowing(ASKED, launches=(), looked=Looked(SEEN), jobs=jobs)
        assert decide(view, START) == BecomeUp(3, FACTS)

    def test_launches_onto_a_cluster_that_has_not_its_job(self) -> None:
        view = knowing(ASKED, launches=(), looked=Looked(SEEN), jobs=(job(1, name="another"),))
        assert decide(view, START) == Record()

    def test_launches_onto_a_cluster_that_is_not_up_to_tell_of_its_job(self) -> None:
        view = knowing(ASKED, launches=(), looked=Looked(SEEN), is_not_up=True)
        assert decide(view, START) == Record()

    def test_is_recorded_before_it_is_called(self) -> None:
        view = knowing(ASKED, launches=(), looked=Looked(None))
        assert decide(view, START) == Record()
        assert decide(knowing(view, launches=(), looked=Looked(None), is_recorded=True), START) == (
            Launch()
        )

    def test_a_launch_that_nobody_answered_is_waited_for(self) -> None:
        asked = replace(WANTED, launch_asked_at=START, launch_tries=1)
        view = knowing(asked, launches=(), looked=Looked(None))
        almost = START + LAUNCH_GRACE - timedelta(seconds=1)
        assert decide(view, almost) == Wait(SOON, "a launch may still be on its way")
        assert decide(view, START + LAUNCH_GRACE) == Record()

    def test_launches_that_are_lost_again_and_again_end_it(self) -> None:
        asked = replace(WANTED, launch_asked_at=START, launch_tries=MAX_LAUNCHES)
        end = decide(knowing(asked, launches=(), looked=Looked(None)), LONG_AFTER)
        assert isinstance(end, End)
        assert end.cause is Cause.LAUNCH_FAILED

    def test_waits_for_an_earlier_cluster_of_the_run(self) -> None:
        view = replace(WANTED, has_predecessor=True)
        assert isinstance(decide(view, START), Wait)

    @pytest.mark.parametrize("kind", list(ErrorKind))
    def test_a_refused_launch_ends_it_with_its_cause(self, kind: ErrorKind) -> None:
        report = RequestReport(state=RequestState.FAILED, error=CloudError(kind, "no"))
        assert decide(knowing(WANTED, report=report), START) == End(CAUSES[kind], "no")


class TestLaunching:
    def test_asks_how_the_request_stands(self) -> None:
        assert decide(LAUNCHING, START) == AskRequest("r1")

    def test_a_finished_launch_is_up(self) -> None:
        report = RequestReport(state=RequestState.DONE, job_id=4, cluster=FACTS)
        assert decide(knowing(LAUNCHING, report=report), START) == BecomeUp(4, FACTS)

    def test_a_forgotten_request_is_looked_for_by_name(self) -> None:
        report = RequestReport(state=RequestState.FORGOTTEN)
        view = knowing(LAUNCHING, report=report)
        assert decide(view, START) == Forget()
        forgotten = fold.enact(view, Forget(), LONG_AFTER)
        assert (forgotten.state, forgotten.request_id) == (ClusterState.WANTED, None)
        assert decide(forgotten, LONG_AFTER) == AskLaunches()
        nothing = knowing(forgotten, launches=(), looked=Looked(None))
        assert isinstance(decide(nothing, LONG_AFTER), Wait), "its process may have outlived it"

    def test_a_failed_launch_without_a_word_ends_it_too(self) -> None:
        report = RequestReport(state=RequestState.FAILED)
        end = decide(knowing(LAUNCHING, report=report), START)
        assert isinstance(end, End)
        assert end.cause is Cause.LAUNCH_FAILED

    def test_a_row_without_its_request_goes_by_the_name(self) -> None:
        assert decide(replace(LAUNCHING, request_id=None), START) == Forget()


class TestUp:
    def test_a_node_that_is_heard_is_let_alone(self) -> None:
        unseen = replace(UP, num_unseen=9)
        assert decide(unseen, START) == Wait(LATER, None)

    def test_gone_twice_and_silent_is_lost(self) -> None:
        silent = START + NODE_SILENT
        assert isinstance(decide(replace(UP, num_unseen=1, seen_at=silent), silent), Wait)
        end = decide(replace(UP, num_unseen=2, seen_at=silent), silent)
        assert isinstance(end, End)
        assert end.cause is Cause.CLUSTER_LOST

    def test_a_stopped_cluster_is_lost_after_a_while(self) -> None:
        stopped = replace(UP, unsound_since=START, seen_state=SeenState.STOPPED)
        silent, after = START + NODE_SILENT, START + UNSOUND_ENOUGH
        assert isinstance(decide(replace(stopped, seen_at=silent), silent), Wait)
        end = decide(replace(stopped, seen_at=after), after)
        assert isinstance(end, End)
        assert end.cause is Cause.CLUSTER_LOST

    @pytest.mark.parametrize("seen", [{"num_unseen": 2}, {"unsound_since": START}])
    def test_what_a_sweep_saw_long_ago_or_before_the_node_was_heard_ends_nothing(
        self, seen: dict[str, Any]
    ) -> None:
        """The clouds were away since: one blip of theirs is no proof hours later."""
        told = replace(UP, seen_at=START, **seen)
        never_heard = replace(told, node_heard_at=None)
        assert decide(never_heard, START + UNSOUND_ENOUGH) == AskJobs()
        heard = replace(told, node_heard_at=LONG_AFTER)
        assert decide(heard, LONG_AFTER + NODE_SILENT) == AskJobs()
        moments = timedelta(seconds=9)
        before = replace(heard, seen_at=LONG_AFTER - moments)
        assert decide(before, LONG_AFTER + NODE_SILENT) == AskJobs()
        after = replace(heard, seen_at=LONG_AFTER + moments)
        assert isinstance(decide(after, LONG_AFTER + NODE_SILENT), End)

    def test_a_silent_node_is_asked_for_its_job_and_a_live_one_is_waited_for(self) -> None:
        silent = START + NODE_SILENT
        assert decide(UP, silent) == AskJobs()
        assert isinstance(decide(knowing(UP, jobs=(job(),)), silent), Wait)

    @pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
    def test_a_job_that_is_over_without_a_word_ends_it(self, state: JobState) -> None:
        end = decide(knowing(UP, jobs=(job(state=state),)), START + NODE_SILENT)
        assert end == End(
            Cause.JOB_ENDED, f"its job is {state.value}, and the node reported no end"
        )

    def test_a_cluster_without_its_job_ends_when_it_has_said_so_twice(self) -> None:
        first = START + NODE_SILENT
        once = fold.learn(UP, Jobs(()), first)
        assert decide(once, first) == Wait(LATER, "its job is not there: it is asked for once more")
        twice = fold.learn(fold.begin(once), Jobs((job(name="another"),)), first + JOBS_EVERY)
        end = decide(twice, first + JOBS_EVERY)
        assert isinstance(end, End)
        assert "its job is not there" in end.message

    def test_answers_without_the_job_count_in_a_row_while_nothing_is_heard(self) -> None:
        once = fold.learn(UP, Jobs(()), START + NODE_SILENT)
        assert fold.learn(once, Jobs((job(),)), LONG_AFTER).num_jobless == 0
        assert fold.learn(once, Jobs(None), LONG_AFTER).num_jobless == 1
        heard = replace(once, node_heard_at=START + NODE_SILENT + JOBS_EVERY)
        assert fold.learn(heard, Jobs(()), LONG_AFTER).num_jobless == 1

    def test_a_cluster_that_is_not_up_to_tell_of_its_job_is_left_to_the_sweeps(self) -> None:
        silent = START + NODE_SILENT
        asked = fold.learn(UP, Jobs(None), silent)
        assert isinstance(decide(asked, silent), Wait)
        assert isinstance(decide(fold.learn(asked, Jobs(None), LONG_AFTER), LONG_AFTER), Wait)

    def test_a_node_that_could_not_be_set_up_is_no_lost_cluster(self) -> None:
        failed = knowing(UP, jobs=(job(1, JobState.SETUP_FAILED),))
        end = decide(failed, START + NODE_SILENT)
        assert isinstance(end, End)
        assert end.cause is Cause.SETUP_FAILED

    @pytest.mark.parametrize(
        ("state", "why"),
        [
            (JobState.WAITING, "the job has not begun"),
            (JobState.SETTING_UP, "its environment is being set up"),
            (JobState.RUNNING, "the job is at work, its node silent"),
        ],
    )
    def test_what_a_silent_nodes_job_does_is_told_until_it_is_asked_for_again(
        self, state: JobState, why: str
    ) -> None:
        asked = fold.learn(UP, Jobs((job(1, state),)), START + NODE_SILENT)
        assert decide(asked, START + NODE_SILENT) == Wait(LATER, why)
        later = fold.begin(replace(asked, waits_for=why))
        assert decide(later, START + NODE_SILENT + LATER) == Wait(LATER, why)

    def test_jobs_are_not_asked_for_at_every_tick(self) -> None:
        silent = START + NODE_SILENT
        asked = replace(UP, jobs_asked_at=silent)
        assert isinstance(decide(asked, silent + timedelta(seconds=59)), Wait)
        assert decide(asked, silent + timedelta(seconds=60)) == AskJobs()

    def test_all_but_the_first_live_job_are_cancelled(self) -> None:
        jobs = (job(1, JobState.CANCELLED), job(2), job(3, JobState.WAITING), job(4, name="other"))
        assert decide(knowing(UP, jobs=jobs), START) == CancelDuplicates((3,))
        done = knowing(UP, jobs=jobs, are_duplicates_cancelled=True)
        assert isinstance(decide(done, START), Wait)

    def test_a_cluster_that_was_launched_twice_is_looked_at_once(self) -> None:
        twice = replace(UP, launch_tries=2)
        assert decide(twice, START) == AskJobs()
        assert isinstance(decide(replace(twice, jobs_asked_at=START), START), Wait)


class TestEnds:
    @pytest.mark.parametrize("view", [WANTED, LAUNCHING, UP], ids=lambda view: view.state.value)
    def test_what_is_not_wanted_ends_without_a_cause(self, view: ClusterView) -> None:
        end = decide(replace(view, is_wanted=False), START)
        assert end == End(None, "it is not wanted any more")

    @pytest.mark.parametrize("view", [WANTED, LAUNCHING, UP], ids=lambda view: view.state.value)
    def test_the_wall_clock_ends_it(self, view: ClusterView) -> None:
        end = decide(replace(view, wall_limit_at=START), START)
        assert isinstance(end, End)
        assert end.cause is Cause.WALL_CLOCK_LIMIT

    def test_it_is_told_then_looked_for_then_gone(self) -> None:
        assert decide(ENDING, START) == AskDown()
        told = knowing(replace(ENDING, down_asked_at=START), is_down_asked=True)
        assert isinstance(decide(told, START), Wait), "machines take their time to go"
        later = replace(ENDING, down_asked_at=START)
        assert decide(later, START) == AskLaunches()
        asked = knowing(later, launches=())
        assert decide(asked, START) == Look()
        there = replace(asked, known=replace(asked.known, looked=Looked(SEEN)))
        assert decide(there, START) == Wait(LATER, "it is still there")
        not_there = replace(asked, known=replace(asked.known, looked=Looked(None)))
        assert decide(not_there, START) == BeGone()

    def test_a_launch_under_way_is_waited_for(self) -> None:
        told = knowing(replace(ENDING, down_asked_at=START), launches=("r2",))
        assert isinstance(decide(told, START), Wait)

    def test_what_is_still_there_is_told_again(self) -> None:
        told = replace(ENDING, down_asked_at=START)
        assert decide(told, START + timedelta(seconds=59)) == AskLaunches()
        assert decide(told, START + timedelta(seconds=60)) == AskDown()

    def test_what_is_told_again_is_looked_for_at_once(self) -> None:
        told = knowing(replace(ENDING, down_asked_at=START, ending_at=START), is_down_asked=True)
        assert isinstance(decide(told, START + timedelta(seconds=59)), Wait)
        assert decide(told, START + timedelta(seconds=60)) == AskLaunches()

    def test_of_what_is_still_there_it_is_asked_why(self) -> None:
        told = replace(ENDING, down_asked_at=START, down_request_id="r9")
        there = knowing(told, launches=(), looked=Looked(SEEN))
        assert decide(there, START) == AskDownFault("r9")
        known = fold.learn(there, DownFault("access denied"), START)
        assert decide(known, START) == Wait(LATER, "it is still there: access denied")
        silent = fold.learn(there, DownFault(None), START)
        assert decide(silent, START) == Wait(LATER, "it is still there")

    def test_telling_it_again_keeps_what_was_said_of_the_time_before(self) -> None:
        again = fold.learn(
            replace(ENDING, waits_for="it is still there: no"), DownAsked("r9"), START
        )
        assert again.down_request_id == "r9"
        assert decide(again, START) == Wait(LATER, "it is still there: no")

    def test_it_is_stuck_ten_minutes_after_it_was_to_end_until_that_was_told(self) -> None:
        ending = fold.enact(UP, End(None, "over"), START)
        assert not is_stuck(ending, START + STUCK - timedelta(seconds=1))
        assert is_stuck(ending, START + STUCK)
        assert not is_stuck(replace(ending, is_end_warned=True), START + STUCK)
        assert not is_stuck(fold.enact(ending, BeGone(), START), START + STUCK)

    def test_what_was_never_asked_for_is_gone_at_once(self) -> None:
        assert decide(replace(WANTED, state=ClusterState.ENDING), START) == BeGone()

    def test_a_launch_that_nobody_answered_may_still_come(self) -> None:
        asked = replace(
            WANTED, state=ClusterState.ENDING, launch_asked_at=START, down_asked_at=START
        )
        view = knowing(asked, is_down_asked=True, launches=(), looked=Looked(None))
        assert isinstance(decide(view, START), Wait)
        assert decide(view, START + LAUNCH_GRACE) == BeGone()

    def test_a_launch_whose_request_is_forgotten_may_still_come(self) -> None:
        view = replace(LAUNCHING, state=ClusterState.ENDING, is_wanted=False)
        assert decide(view, LONG_AFTER) == AskDown(), "before anything is asked"
        told = knowing(replace(view, down_asked_at=LONG_AFTER), is_down_asked=True)
        assert decide(told, LONG_AFTER) == AskRequest("r1")
        known = knowing(
            told, is_down_asked=True, report=RequestReport(state=RequestState.FORGOTTEN)
        )
        assert decide(known, LONG_AFTER) == Forget()
        forgotten = fold.enact(known, Forget(), LONG_AFTER)
        assert forgotten.state is ClusterState.ENDING
        assert forgotten.launch_asked_at == LONG_AFTER

    def test_gone_stays_gone(self) -> None:
        gone = replace(ENDING, state=ClusterState.GONE)
        assert isinstance(decide(gone, LONG_AFTER), Wait)


def test_what_sweeps_saw_before_the_node_was_heard_does_not_count() -> None:
    unseen = fold.sweep(UP, None, START)
    heard = replace(unseen, node_heard_at=START + LATER)
    assert fold.sweep(heard, None, LONG_AFTER).num_unseen == 1
    coming = Sighting(name=NAME, state=SeenState.COMING)
    unsound = replace(fold.sweep(UP, coming, START), node_heard_at=START + LATER)
    assert unsound.unsound_since == START
    assert fold.sweep(unsound, coming, LONG_AFTER).unsound_since == LONG_AFTER


def test_sweeps_count_what_they_did_not_find_and_since_when_it_is_unsound() -> None:
    once = fold.sweep(UP, None, START)
    twice = fold.sweep(once, None, START)
    assert (once.num_unseen, twice.num_unseen, twice.seen_state) == (1, 2, None)
    stopped = Sighting(name=NAME, state=SeenState.STOPPED)
    there = fold.sweep(fold.sweep(twice, stopped, START), stopped, LONG_AFTER)
    assert (there.num_unseen, there.unsound_since) == (0, START)
    assert fold.sweep(there, SEEN, LONG_AFTER).unsound_since is None
