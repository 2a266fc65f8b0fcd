"""Where a run goes when its newest attempt has ended, and with which reason; no database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from api.runs.end_reasons import MAX_FAILURES, REASONS
from api.runs.status import RunStatus
from api.scheduling.finalize import SETTLED, finalize_attempt, tail_missing
from api.tables import Attempt, Run
from hillclimb.protocol.end_reasons import ReasonCode

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MOMENT = timedelta(seconds=1)
SESSION = Session()
S, C = RunStatus, ReasonCode
Move = tuple[RunStatus, ReasonCode | None, str | None]


def ended(**fields: Any) -> Attempt:
    given = {
        "run_id": "run_1",
        "number": 4,
        "state": "ended",
        "end_code": None,
        "end_message": None,
        "trainer_code": None,
        "trainer_message": None,
        "last_trainer_seq": 0,
        "final_trainer_seq": None,
    } | fields
    return Attempt(**given)


def run_in(status: RunStatus = S.RUNNING, **fields: Any) -> Run:
    given = {
        "id": "run_1",
        "status": status.value,
        "desired_state": "running",
        "deadline_at": NOW + MOMENT,
        "num_failures": 0,
        "started_at": NOW - timedelta(hours=1),
        "pause_code": None,
        "pause_message": None,
    } | fields
    return Run(**given)


class Saved:
    """What attempt 4 of the run stored."""

    checkpoint = False
    validated = False


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> Saved:
    kept = Saved()

    def answer(name: str) -> Any:
        def ask(session: Session, run_id: str, number: int) -> bool:
            assert (session, run_id, number) == (SESSION, "run_1", 4)
            return bool(getattr(kept, name))

        return ask

    monkeypatch.setattr("api.scheduling.finalize.store.saved_checkpoint", answer("checkpoint"))
    monkeypatch.setattr("api.scheduling.finalize.store.validated_more", answer("validated"))
    return kept


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch, saved: Saved) -> list[Move]:
    del saved
    made: list[Move] = []

    def move(
        session: Session,
        run: Run,
        to: RunStatus,
        *,
        now: datetime,
        reason: tuple[ReasonCode, str] | None = None,
    ) -> None:
        assert (session, now) == (SESSION, NOW)
        run.status = to.value
        made.append((to, *(reason or (None, None))))

    monkeypatch.setattr("api.scheduling.finalize.move", move)
    return made


def finalize(run: Run, attempt: Attempt) -> None:
    finalize_attempt(SESSION, run, attempt, now=NOW)


@pytest.mark.parametrize("state", ["offered", "claimed", "running"])
def test_an_attempt_that_goes_on_changes_nothing(moves: list[Move], state: str) -> None:
    finalize(run_in(), ended(state=state, end_code="completed"))
    assert moves == []


@pytest.mark.parametrize("status", sorted(SETTLED))
def test_a_settled_run_is_left_alone(moves: list[Move], status: RunStatus) -> None:
    finalize(run_in(status), ended(end_code="trainer_crashed"))
    assert moves == []


@pytest.mark.parametrize(
    ("fields", "is_missing"),
    [
        ({}, False),
        ({"final_trainer_seq": 5, "last_trainer_seq": 4}, True),
        ({"final_trainer_seq": 5, "last_trainer_seq": 5}, False),
        ({"final_trainer_seq": 5, "last_trainer_seq": 6}, False),
        ({"final_trainer_seq": 5, "last_trainer_seq": 4, "trainer_code": "completed"}, False),
    ],
)
def test_events_are_missing_up_to_the_last_one_unless_that_has_said_the_end(
    fields: dict[str, Any], is_missing: bool
) -> None:
    assert tail_missing(ended(**fields)) is is_missing


@pytest.mark.parametrize(
    ("deadline", "waits"),
    [(NOW + MOMENT, True), (NOW, False), (NOW - MOMENT, False), (None, False)],
)
def test_missing_events_are_waited_for_until_the_deadline(
    moves: list[Move], deadline: datetime | None, waits: bool
) -> None:
    attempt = ended(end_code="completed", final_trainer_seq=5, last_trainer_seq=4)
    run = run_in(S.FINALIZING, deadline_at=deadline)
    finalize(run, attempt)
    late = (S.RECOVERING, C.FINALIZE_TIMEOUT, REASONS[C.FINALIZE_TIMEOUT].wording)
    assert moves == ([] if waits else [late])
    assert run.num_failures == (0 if waits else 1)


def test_a_trainer_that_finished_succeeds_by_way_of_finalizing(moves: list[Move]) -> None:
    finalize(run_in(S.RUNNING), ended(end_code="completed", end_message="exit 0"))
    finalize(run_in(S.FINALIZING), ended(trainer_code="completed", trainer_message="done"))
    assert moves == [
        (S.FINALIZING, None, None),
        (S.SUCCEEDED, C.COMPLETED, "exit 0"),
        (S.SUCCEEDED, C.COMPLETED, "done"),
    ]


def test_what_the_trainer_said_counts_before_what_was_seen_from_outside(moves: list[Move]) -> None:
    seen = {"end_code": "runner_lost", "end_message": "silent"}
    finalize(run_in(), ended(trainer_code="non_finite_update", trainer_message="NaN", **seen))
    finalize(run_in(), ended(trainer_code="non_finite_update", **seen))
    finalize(run_in(), ended(**seen))
    finalize(run_in(), ended(end_code="spec_rejected"))
    finalize(run_in(), ended())
    assert moves == [
        (S.FAILED, C.NON_FINITE_UPDATE, "NaN"),
        (S.FAILED, C.NON_FINITE_UPDATE, REASONS[C.NON_FINITE_UPDATE].wording),
        (S.RECOVERING, C.RUNNER_LOST, "silent"),
        (S.FAILED, C.SPEC_REJECTED, REASONS[C.SPEC_REJECTED].wording),
        (S.RECOVERING, C.INTERNAL, REASONS[C.INTERNAL].wording),
    ]


def test_a_cancelled_run_ends_as_such_unless_it_had_finished(moves: list[Move]) -> None:
    finalize(run_in(desired_state="cancelled"), ended(end_code="trainer_crashed"))
    finalize(run_in(S.FINALIZING, desired_state="cancelled"), ended(end_code="completed"))
    assert [(to, code) for to, code, _ in moves] == [
        (S.CANCELLED, C.CANCELLED_BY_USER),
        (S.SUCCEEDED, C.COMPLETED),
    ]
    assert moves[0][2] == REASONS[C.CANCELLED_BY_USER].wording


BY_USER = (S.PAUSED, C.PAUSED_BY_USER, REASONS[C.PAUSED_BY_USER].wording)


@pytest.mark.parametrize(
    ("code", "fields", "move"),
    [
        # However its trainer ended, the run was to pause.
        ("runner_stopped", {}, BY_USER),
        ("trainer_crashed", {}, BY_USER),
        ("paused_by_user", {}, BY_USER),
        (
            "runner_stopped",
            {"pause_code": "cluster_time_up", "pause_message": "an hour is left"},
            (S.PAUSED, C.CLUSTER_TIME_UP, "an hour is left"),
        ),
        (
            "paused_by_user",
            {"pause_code": "budget_exhausted"},
            (S.PAUSED, C.BUDGET_EXHAUSTED, REASONS[C.BUDGET_EXHAUSTED].wording),
        ),
        # The trainer's own reason to pause says more.
        ("storage_full", {"pause_code": "cluster_time_up"}, (S.PAUSED, C.STORAGE_FULL, "seen")),
        # One that cannot go on is not paused.
        ("spec_rejected", {}, (S.FAILED, C.SPEC_REJECTED, "seen")),
    ],
)
def test_a_run_that_was_to_pause_is_paused_with_the_reason_of_the_pause(
    moves: list[Move], code: str, fields: dict[str, Any], move: Move
) -> None:
    run = run_in(S.PAUSING, desired_state="paused", **fields)
    finalize(run, ended(end_code=code, end_message="seen"))
    assert moves == [move]
    assert run.num_failures == 0


@pytest.mark.parametrize(
    ("code", "checkpoint", "validated", "counts"),
    [
        ("trainer_crashed", False, False, True),
        ("trainer_crashed", True, True, True),
        ("runner_lost", False, False, True),
        ("runner_lost", True, False, False),
        ("runner_lost", False, True, False),
        ("runner_stopped", False, False, False),
    ],
)
def test_an_end_counts_as_its_reason_says(
    moves: list[Move], saved: Saved, code: str, checkpoint: bool, validated: bool, counts: bool
) -> None:
    saved.checkpoint, saved.validated = checkpoint, validated
    run = run_in(num_failures=1)
    finalize(run, ended(end_code=code, end_message="seen"))
    assert run.num_failures == 1 + counts
    assert moves == [(S.RECOVERING, C(code), "seen")]


@pytest.mark.parametrize(
    ("code", "failures", "move"),
    [
        ("trainer_crashed", 1, (S.RECOVERING, C.TRAINER_CRASHED, "seen")),
        (
            "trainer_crashed",
            MAX_FAILURES - 1,
            (S.FAILED, C.TRAINER_CRASHED, "seen (the last of 3 failed attempts)"),
        ),
        (
            "store_unavailable",
            MAX_FAILURES - 1,
            (S.PAUSED, C.STORE_UNAVAILABLE, "seen (the last of 3 failed attempts)"),
        ),
        ("runner_stopped", MAX_FAILURES, (S.RECOVERING, C.RUNNER_STOPPED, "seen")),
        ("spec_rejected", MAX_FAILURES, (S.FAILED, C.SPEC_REJECTED, "seen")),
        ("storage_full", 0, (S.PAUSED, C.STORAGE_FULL, "seen")),
    ],
)
def test_the_last_failure_ends_what_would_have_been_tried_again(
    moves: list[Move], code: str, failures: int, move: Move
) -> None:
    finalize(run_in(num_failures=failures), ended(end_code=code, end_message="seen"))
    assert moves == [move]


@pytest.mark.parametrize(
    ("code", "started", "to"),
    [
        ("cluster_refused", None, S.FAILED),
        ("cluster_refused", NOW, S.PAUSED),
        ("spec_rejected", NOW, S.FAILED),
        ("node_unfit", None, S.QUEUED),
        ("node_unfit", NOW, S.RECOVERING),
    ],
)
def test_before_its_trainer_began_a_run_waits_in_the_queue_again_or_ends(
    moves: list[Move], code: str, started: datetime | None, to: RunStatus
) -> None:
    """A run that trained before waits as one that recovers; a refusal then only pauses it."""
    run = run_in(S.PROVISIONING, started_at=started)
    finalize(run, ended(end_code=code, end_message="seen"))
    assert moves == [(to, C(code), "seen")]


def test_a_trainer_that_was_starting_for_the_first_time_recovers(moves: list[Move]) -> None:
    finalize(run_in(S.STARTING, started_at=None), ended(end_code="node_unfit"))
    assert [to for to, _, _ in moves] == [S.RECOVERING]
