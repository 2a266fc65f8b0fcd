"""What an action leaves in the view: the fields it names, and no other one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.worker.clusters.decisions.test_decide import (
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
    AdoptLaunch,
    ForgetRequest,
    MarkRunning,
    MarkTerminated,
    MarkTerminating,
)
from worker.clusters.transitions import apply_observation, apply_sweep, apply_transition, begin
from worker.clusters.view import (
    Cause,
    ClusterObserved,
    ClusterState,
    ClusterView,
    DuplicatesCancelled,
    JobsListed,
    LaunchAccepted,
    LaunchesListed,
    LaunchRecorded,
    LaunchRejected,
    LaunchReported,
    Observation,
    Observations,
    TerminationFault,
    TerminationRequested,
    Unreachable,
)
from worker.skypilot.port import (
    CloudCluster,
    CloudError,
    CloudState,
    ErrorKind,
    OfferOutcome,
    RequestReport,
    RequestState,
    TriedOffer,
)

MOMENT = timedelta(seconds=1)
OTHER_FACTS = replace(FACTS, region="us-east-1")
KNOWN = observing(replace(UP, launch_tries=2), launches=("r0",), is_launch_recorded=True)
REPORT = RequestReport(state=RequestState.WORKING)


def test_a_tick_begins_without_observations() -> None:
    assert begin(KNOWN) == replace(KNOWN, observations=Observations())


@pytest.mark.parametrize(
    ("observation", "known"),
    [
        (Unreachable("refused"), {"is_unreachable": True, "unreachable_reason": "refused"}),
        (LaunchesListed(("r7", "r8")), {"launches": ("r7", "r8")}),
        (ClusterObserved(SEEN), {"observed_cluster": ClusterObserved(SEEN)}),
        (ClusterObserved(None), {"observed_cluster": ClusterObserved(None)}),
        (LaunchReported(REPORT), {"launch_report": REPORT}),
        (TerminationFault("no"), {"termination_fault": TerminationFault("no")}),
        (DuplicatesCancelled((3,)), {"are_duplicates_cancelled": True}),
    ],
)
def test_an_answer_is_added_to_what_the_tick_knows(
    observation: Observation, known: dict[str, object]
) -> None:
    found = apply_observation(KNOWN, observation, LONG_AFTER)
    expected = {"launches": ("r0",), "is_launch_recorded": True} | known
    assert found == observing(KNOWN, **expected)


def test_a_recorded_launch_is_counted_with_its_time() -> None:
    found = apply_observation(KNOWN, LaunchRecorded(), LONG_AFTER)
    assert (found.launch_requested_at, found.launch_tries) == (LONG_AFTER, 3)
    before = observing(KNOWN, launches=("r0",))
    again = apply_observation(before, LaunchRecorded(), START)
    assert again == replace(KNOWN, launch_requested_at=START, launch_tries=3)


def test_an_accepted_launch_is_followed_by_its_request() -> None:
    found = apply_observation(WANTED, LaunchAccepted("r5"), START)
    assert found == replace(WANTED, state=ClusterState.PROVISIONING, request_id="r5")


def test_a_rejected_launch_is_a_failed_one_with_its_offers() -> None:
    offer = TriedOffer(infra="lambda", outcome=next(iter(OfferOutcome)))
    error = CloudError(ErrorKind.REFUSED, "no", (offer,))
    found = apply_observation(WANTED, LaunchRejected(error), START)
    report = RequestReport(state=RequestState.FAILED, error=error, offers=(offer,))
    assert found == observing(WANTED, launch_report=report)


def test_listed_jobs_are_known_with_the_time_of_the_question() -> None:
    found = apply_observation(UP, JobsListed((job(),)), LONG_AFTER)
    assert found == observing(replace(UP, jobs_requested_at=LONG_AFTER), jobs=(job(),))
    unavailable = apply_observation(UP, JobsListed(None), LONG_AFTER)
    expected = replace(UP, jobs_requested_at=LONG_AFTER)
    assert unavailable == observing(expected, jobs=None, are_jobs_unavailable=True)


@pytest.mark.parametrize(
    ("polled", "heartbeat", "polls"),
    [
        (None, None, 4),
        (START, None, 4),
        (None, START, 4),
        (START, START - MOMENT, 4),
        (START, START, 4),
        (START, START + MOMENT, 1),
    ],
)
def test_listings_without_the_job_count_from_the_last_heartbeat_on(
    polled: datetime | None, heartbeat: datetime | None, polls: int
) -> None:
    view = replace(UP, polls_without_job=3, jobs_requested_at=polled, node_heartbeat_at=heartbeat)
    found = apply_observation(view, JobsListed((job(name="another"),)), LONG_AFTER)
    assert found.polls_without_job == polls
    unavailable = apply_observation(view, JobsListed(None), LONG_AFTER)
    assert unavailable.polls_without_job == polls - 1
    assert apply_observation(view, JobsListed((job(),)), LONG_AFTER).polls_without_job == 0


def test_a_termination_request_is_kept_with_its_time() -> None:
    found = apply_observation(UP, TerminationRequested("r9"), LONG_AFTER)
    expected = replace(UP, termination_requested_at=LONG_AFTER, termination_request_id="r9")
    assert found == observing(expected, is_termination_requested=True)


def test_an_adopted_launch_is_followed_like_ones_own() -> None:
    found = apply_transition(KNOWN, AdoptLaunch("r7"), LONG_AFTER)
    assert found == replace(KNOWN, state=ClusterState.PROVISIONING, request_id="r7")


@pytest.mark.parametrize("view", [LAUNCHING, replace(UP, state=ClusterState.TERMINATING)])
def test_a_forgotten_request_is_dropped_with_what_was_found_through_it(view: ClusterView) -> None:
    known = observing(
        view,
        launch_report=REPORT,
        launches=("r0",),
        observed_cluster=ClusterObserved(SEEN),
        is_termination_requested=True,
    )
    found = apply_transition(known, ForgetRequest(), LONG_AFTER)
    state = ClusterState.PENDING if view is LAUNCHING else ClusterState.TERMINATING
    expected = replace(view, state=state, request_id=None, launch_requested_at=LONG_AFTER)
    assert found == observing(expected, is_termination_requested=True)


def test_a_cluster_that_runs_begins_healthy() -> None:
    troubled = replace(
        LAUNCHING, missed_polls=2, unhealthy_since=START, observed_state=CloudState.INIT
    )
    found = apply_transition(troubled, MarkRunning(4, FACTS), LONG_AFTER)
    assert found == replace(
        LAUNCHING,
        state=ClusterState.RUNNING,
        job_id=4,
        cluster=FACTS,
        running_at=LONG_AFTER,
        observed_state=CloudState.UP,
        missed_polls=0,
        unhealthy_since=None,
    )


def test_a_cluster_that_ran_before_keeps_its_facts_and_the_time_of_its_beginning() -> None:
    found = apply_transition(UP, MarkRunning(None, None), LONG_AFTER)
    assert (found.job_id, found.cluster, found.running_at) == (None, FACTS, START)
    assert apply_transition(UP, MarkRunning(None, OTHER_FACTS), START).cluster == OTHER_FACTS


def test_a_cluster_that_is_given_up_keeps_why_until_it_is_gone() -> None:
    waiting = replace(UP, status_reason="the cluster is not up")
    found = apply_transition(waiting, MarkTerminating(Cause.CLUSTER_LOST, "gone"), LONG_AFTER)
    ending = replace(
        waiting,
        state=ClusterState.TERMINATING,
        terminating_at=LONG_AFTER,
        cause=Cause.CLUSTER_LOST,
        message="gone",
    )
    assert found == ending
    gone = apply_transition(ending, MarkTerminated(), LONG_AFTER)
    assert gone == replace(ending, state=ClusterState.TERMINATED, status_reason=None)


STOPPED = CloudCluster(name=SEEN.name, state=CloudState.STOPPED, cluster=OTHER_FACTS)
COUNTED = replace(
    UP,
    observed_state=CloudState.INIT,
    seen_at=START,
    missed_polls=3,
    unhealthy_since=START - MOMENT,
)


@pytest.mark.parametrize(
    ("heartbeat", "seen", "counts"),
    [
        (None, None, True),
        (None, START, True),
        (START, None, False),
        (START - MOMENT, START, True),
        (START, START, True),
        (START + MOMENT, START, False),
    ],
)
def test_a_sweep_goes_on_counting_unless_the_node_was_heard_since_the_last_one(
    heartbeat: datetime | None, seen: datetime | None, counts: bool
) -> None:
    view = replace(COUNTED, node_heartbeat_at=heartbeat, seen_at=seen)
    missed = apply_sweep(view, None, LONG_AFTER)
    assert missed == replace(
        view,
        observed_state=None,
        seen_at=LONG_AFTER,
        missed_polls=4 if counts else 1,
        unhealthy_since=None,
    )
    stopped = apply_sweep(view, STOPPED, LONG_AFTER)
    assert stopped == replace(
        view,
        observed_state=CloudState.STOPPED,
        seen_at=LONG_AFTER,
        missed_polls=0,
        unhealthy_since=COUNTED.unhealthy_since if counts else LONG_AFTER,
        cluster=OTHER_FACTS,
    )


def test_a_sweep_that_finds_it_up_ends_all_counts_and_keeps_facts_it_was_not_told() -> None:
    found = apply_sweep(COUNTED, CloudCluster(name=SEEN.name, state=CloudState.UP), LONG_AFTER)
    assert found == replace(
        COUNTED,
        observed_state=CloudState.UP,
        seen_at=LONG_AFTER,
        missed_polls=0,
        unhealthy_since=None,
    )
