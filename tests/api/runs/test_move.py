"""What a change of status leaves in the run's row, and in its event; no database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from api.runs.deadlines import (
    CLUSTER_STARTING_S,
    CLUSTER_STOPPING_S,
    DEADLINES_S,
    STEP_MARGIN_S,
)
from api.runs.errors import InvalidTransition
from api.runs.journal import Draft
from api.runs.status import TERMINAL, RunStatus
from api.runs.transitions import SHOWS_REASON, move, set_deadline
from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)
SESSION = Session()
CRASH = (ReasonCode.TRAINER_CRASHED, "signal 9")


def run_in(status: RunStatus, *, backend: str = "local", **fields: Any) -> Run:
    spec = {"kind": "train", "backend": {"type": backend}, "schedule": {"step_timeout_s": 60.0}}
    given = {
        "id": "run_1",
        "status": status.value,
        "status_since": EARLIER,
        "due_at": EARLIER,
        "deadline_at": EARLIER,
        "attempt": 2,
        "spec": spec,
        "progress_eta_s": 7.0,
        "progress_phase": "sampling",
    } | fields
    return Run(**given)


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> list[Draft]:
    """The events that were appended."""
    made: list[Draft] = []

    def append(session: Session, run: Run, new: list[Draft]) -> None:
        assert (session, run.id) == (SESSION, "run_1")
        made.extend(new)

    monkeypatch.setattr("api.runs.transitions.append", append)
    return made


def test_a_change_is_stamped_and_recorded(drafts: list[Draft]) -> None:
    run = run_in(RunStatus.RUNNING)
    move(SESSION, run, RunStatus.PAUSING, now=NOW)
    assert (run.status, run.status_since, run.due_at) == ("pausing", NOW, NOW)
    assert run.deadline_at == NOW + timedelta(seconds=180)
    assert (run.end_code, run.end_message, run.ended_at) == (None, None, None)
    assert (run.progress_eta_s, run.progress_phase, run.stuck_at) == (None, None, None)
    assert drafts == [
        Draft(
            type="run.status_changed",
            at=NOW,
            actor="service",
            attempt=2,
            data={"from": "running", "to": "pausing"},
        )
    ]


def test_the_event_says_who_and_why_and_of_no_attempt_before_the_first(
    drafts: list[Draft],
) -> None:
    run = run_in(RunStatus.RUNNING, attempt=0)
    move(SESSION, run, RunStatus.FAILED, now=NOW, actor="user", reason=CRASH)
    (draft,) = drafts
    assert (draft.actor, draft.attempt) == ("user", None)
    assert draft.data == {
        "from": "running",
        "to": "failed",
        "reason": {
            "code": "trainer_crashed",
            "category": "infra",
            "retryable": True,
            "message": "signal 9",
        },
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RunStatus.FINALIZING, RunStatus.SUCCEEDED),
        (RunStatus.RUNNING, RunStatus.FAILED),
        (RunStatus.RUNNING, RunStatus.CANCELLED),
        (RunStatus.RUNNING, RunStatus.PAUSED),
        (RunStatus.RUNNING, RunStatus.RECOVERING),
        (RunStatus.RUNNING, RunStatus.FINALIZING),
        (RunStatus.PROVISIONING, RunStatus.QUEUED),
    ],
)
@pytest.mark.usefixtures("drafts")
def test_an_end_is_dated_a_wait_is_not_due_and_a_reason_is_shown_where_it_explains(
    before: RunStatus, after: RunStatus
) -> None:
    run = run_in(before)
    move(SESSION, run, after, now=NOW, reason=CRASH)
    is_over = after in TERMINAL
    assert run.ended_at == (NOW if is_over else None)
    assert run.due_at == (None if is_over or after is RunStatus.PAUSED else NOW)
    shown = (run.end_code, run.end_message)
    assert shown == (("trainer_crashed", "signal 9") if after in SHOWS_REASON else (None, None))
    assert (after in SHOWS_REASON) == (after not in {RunStatus.FINALIZING, RunStatus.QUEUED})


@pytest.mark.usefixtures("drafts")
def test_a_run_that_goes_on_forgets_the_reason_and_keeps_its_progress() -> None:
    run = run_in(RunStatus.STARTING, end_code="no_runner", end_message="none")
    move(SESSION, run, RunStatus.RUNNING, now=NOW)
    assert (run.end_code, run.end_message) == (None, None)
    assert (run.progress_eta_s, run.progress_phase) == (7.0, "sampling")


def test_what_the_table_refuses_changes_nothing(drafts: list[Draft]) -> None:
    run = run_in(RunStatus.PAUSED)
    with pytest.raises(InvalidTransition, match="Run run_1 is paused and cannot become running"):
        move(SESSION, run, RunStatus.RUNNING, now=NOW)
    assert (run.status, run.status_since, drafts) == ("paused", EARLIER, [])


@pytest.mark.parametrize("status", sorted(RunStatus))
def test_every_status_has_the_deadline_of_the_table(status: RunStatus) -> None:
    run = run_in(status)
    set_deadline(run, now=NOW)
    seconds = DEADLINES_S[status]
    assert run.deadline_at == (None if seconds is None else NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        (RunStatus.PROVISIONING, None),
        (RunStatus.STARTING, CLUSTER_STARTING_S),
        (RunStatus.PAUSING, CLUSTER_STOPPING_S),
        (RunStatus.CANCELLING, CLUSTER_STOPPING_S),
        (RunStatus.FINALIZING, 120.0),
        (RunStatus.RUNNING, 1800.0),
        (RunStatus.QUEUED, None),
    ],
)
def test_a_cluster_has_longer_ones(status: RunStatus, seconds: float | None) -> None:
    run = run_in(status, backend="skypilot")
    set_deadline(run, now=NOW)
    assert run.deadline_at == (None if seconds is None else NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        ({"step_timeout_s": 1499.0}, 1800.0),
        ({"step_timeout_s": 1501.0}, 1801.0),
        ({"step_timeout_s": 9000.0}, 9000.0 + STEP_MARGIN_S),
        ({}, 1800.0),
        (None, 1800.0),
    ],
)
def test_a_step_may_take_as_long_as_its_spec_allows_and_a_margin(
    schedule: dict[str, float] | None, seconds: float
) -> None:
    """The trainer's own limit comes first: it names the cause."""
    spec = {"kind": "train", "backend": {"type": "local"}, "schedule": schedule}
    if schedule is None:
        del spec["schedule"]
    running = run_in(RunStatus.RUNNING, spec=spec)
    set_deadline(running, now=NOW)
    assert running.deadline_at == NOW + timedelta(seconds=seconds)
    starting = run_in(RunStatus.STARTING, spec=spec)
    set_deadline(starting, now=NOW)
    assert starting.deadline_at == NOW + timedelta(seconds=1800)
