"""The state machine as a table."""

import itertools

import pytest

from api.runs.deadlines import DEADLINES_S
from api.runs.status import TERMINAL, TRANSITIONS, RunStatus, may_follow


def test_every_status_has_a_row_of_transitions_and_a_deadline_or_a_reason_to_wait() -> None:
    assert set(TRANSITIONS) == set(DEADLINES_S) == set(RunStatus)
    waits = {status for status, seconds in DEADLINES_S.items() if seconds is None}
    assert waits == TERMINAL | {RunStatus.QUEUED, RunStatus.RECOVERING, RunStatus.PAUSED}


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.product(sorted(TERMINAL), sorted(RunStatus)))
)
def test_nothing_leaves_a_terminal_status(before: RunStatus, after: RunStatus) -> None:
    assert not may_follow(before, after)


@pytest.mark.parametrize("status", sorted(RunStatus))
def test_no_status_follows_itself(status: RunStatus) -> None:
    assert not may_follow(status, status)


@pytest.mark.parametrize("status", sorted(set(RunStatus) - TERMINAL))
def test_an_end_can_be_reached_from_every_status(status: RunStatus) -> None:
    seen, edge = {status}, {status}
    while edge:
        edge = {after for before in edge for after in TRANSITIONS[before]} - seen
        seen |= edge
    assert {RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.SUCCEEDED} & seen
    assert RunStatus.CANCELLED in seen


@pytest.mark.parametrize("status", sorted(set(RunStatus) - {RunStatus.QUEUED}))
def test_every_status_can_be_reached_from_queued(status: RunStatus) -> None:
    seen, edge = {RunStatus.QUEUED}, {RunStatus.QUEUED}
    while edge:
        edge = {after for before in edge for after in TRANSITIONS[before]} - seen
        seen |= edge
    assert status in seen
