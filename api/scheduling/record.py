"""Ingest: records a trainer's events as the run's events, results and status.

The push route and the worker's relay both call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from api.results.derive import derive, to_draft
from api.results.preflight.prompts import changed_prompts
from api.runs import store
from api.runs.deadlines import DEADLINES_S
from api.runs.end_reasons import REASONS, AfterEnd
from api.runs.errors import AttemptSuperseded, UnknownToken, UnsupportedSchema
from api.runs.journal import Draft, append
from api.runs.status import AttemptState, RunStatus
from api.runs.transitions import move, set_deadline
from api.scheduling.attempts import hash_token
from api.scheduling.finalize import finalize_attempt
from api.scheduling.limits.guards.watch import watch
from api.tables import Attempt, Run
from api.tables.database import why_unstorable
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import (
    ACCEPTED_SCHEMAS,
    Event,
    EventRefused,
    IngestReply,
    PhaseStarted,
    PromptsRendered,
    StepCompleted,
    TrainerEnded,
    TrainerStarted,
    TrainerStarting,
)
from hillclimb.protocol.refused_events import refuse


def record_push(
    session: Session, token: str, events: Sequence[Event], *, now: datetime
) -> tuple[Run, IngestReply]:
    """Record events that a trainer pushed with its token, unless its attempt has ended.

    Raises UnknownToken, AttemptSuperseded, UnsupportedSchema; then nothing is recorded.
    """
    pair = store.lock_by_token(session, hash_token(token))
    if pair is None:
        raise UnknownToken("The attempt token is not known.")
    run, attempt = pair
    if attempt.state == AttemptState.ENDED.value:
        raise AttemptSuperseded(f"Attempt {attempt.number} of run {run.id} has ended: stop.")
    return run, record(session, run, attempt, events, now=now)


def record(
    session: Session, run: Run, attempt: Attempt, events: Sequence[Event], *, now: datetime
) -> IngestReply:
    """Record the events that continue the recorded ones without a gap; ignore the others.

    `run` is locked. The attempt may have ended (the relay brings a dead trainer's tail), but it
    must be the run's newest: raises AttemptSuperseded otherwise, and UnsupportedSchema for
    events of a version that is not accepted. The reply has the last recorded number.
    """
    if attempt.number != run.attempt:
        raise AttemptSuperseded(f"Attempt {run.attempt} owns run {run.id} now: stop.")
    fresh = _contiguous(events, after=attempt.last_trainer_seq)
    for event in fresh:
        if event.schema_version not in ACCEPTED_SCHEMAS:
            raise UnsupportedSchema(
                f"Event schema {event.schema_version} is not accepted: this service takes"
                f" {ACCEPTED_SCHEMAS[1]} and {ACCEPTED_SCHEMAS[0]}."
            )
    if fresh:
        attempt.last_trainer_seq = fresh[-1].trainer_seq
        attempt.last_event_at = now
        stored = _store(session, run, attempt, fresh, now=now)
        _follow_end(session, run, attempt, stored[-1], now=now)
    return IngestReply(accepted=len(fresh), last_trainer_seq=attempt.last_trainer_seq)


def _contiguous(events: Sequence[Event], *, after: int) -> list[Event]:
    """Return the events numbered `after` + 1, + 2, … up to the first gap."""
    fresh: list[Event] = []
    for event in events:
        if event.trainer_seq == after + len(fresh) + 1:
            fresh.append(event)
    return fresh


def _begin(
    session: Session, run: Run, attempt: Attempt, events: Sequence[Event], *, now: datetime
) -> None:
    """Set attempt and run to running once the trainer works; then events restart the deadline.

    The phases of a start change neither: all of them have one deadline. The deadline stays once the
    attempt has ended, is stopping, or is requested to stop.
    """
    if all(isinstance(event, TrainerStarting) for event in events):
        return
    if attempt.state == AttemptState.CLAIMED.value:
        attempt.state = AttemptState.RUNNING.value
        attempt.started_at = now
    if attempt.state == AttemptState.ENDED.value:
        return
    if run.status == RunStatus.STARTING.value:
        run.started_at = run.started_at or now
        move(session, run, RunStatus.RUNNING, now=now)
    elif run.status == RunStatus.RUNNING.value and attempt.kill_requested_at is None:
        set_deadline(run, now=now)


def _store(
    session: Session, run: Run, attempt: Attempt, events: Sequence[Event], *, now: datetime
) -> Sequence[Event]:
    """Write the events and what follows from them, and return them as they are stored.

    One that the database can never store is replaced by an `event.refused` under its number, found
    by halving the batch: an attempt whose stream stood still at it would be lost.
    """
    try:
        with session.begin_nested():
            _begin(session, run, attempt, events, now=now)
            _journal(session, run, attempt, events)
            derive(session, run, attempt.number, events)
            watch(session, run, attempt, events, now=now)
    except DBAPIError as error:
        why = why_unstorable(error)
        if why is None:
            raise
        if len(events) == 1:
            if isinstance(events[0], EventRefused):
                raise
            return _store(session, run, attempt, [_refusal(events[0], why)], now=now)
        middle = len(events) // 2
        halves = (events[:middle], events[middle:])
        return [e for half in halves for e in _store(session, run, attempt, half, now=now)]
    return events


def _refusal(event: Event, why: str) -> EventRefused:
    sentence = f"The database cannot store it: {why}."
    return refuse(event.model_dump_json().encode(), trainer_seq=event.trainer_seq, message=sentence)


def _journal(session: Session, run: Run, attempt: Attempt, events: Sequence[Event]) -> None:
    threshold = float(run.spec["eval"]["pass_threshold"])
    drafts: list[Draft] = []
    for event in events:
        if isinstance(event, TrainerStarted):
            drafts.extend(_rewind(run, attempt, event))
        drafts.append(to_draft(event, attempt.number, pass_threshold=threshold))
        if isinstance(event, PromptsRendered):
            changed = changed_prompts(session, run, attempt.number, event)
            drafts.extend([changed] if changed else [])
        _progress(run, event)
    append(session, run, drafts)


def _rewind(run: Run, attempt: Attempt, event: TrainerStarted) -> list[Draft]:
    """Reset the progress of a run that repeats steps, and return the event about it."""
    from_step, reached = event.resumed_from_step or 0, run.progress_step
    if attempt.number == 1 or from_step >= reached:
        return []
    run.progress_step = from_step
    data = {"from_step": from_step, "reached_step": reached, "attempt": attempt.number}
    return [Draft(type="attempt.rewound", at=event.at, attempt=attempt.number, data=data)]


def _progress(run: Run, event: Event) -> None:
    if isinstance(event, TrainerStarted):
        run.progress_total = event.total_steps
        run.progress_step = event.resumed_from_step or 0
    elif isinstance(event, PhaseStarted) or (
        isinstance(event, TrainerStarting) and event.seconds is None
    ):
        run.progress_phase = event.phase
    elif isinstance(event, StepCompleted):
        run.progress_step = event.step
        run.progress_eta_s = event.eta_s


def _follow_end(
    session: Session, run: Run, attempt: Attempt, last: Event, *, now: datetime
) -> None:
    """Finalize the run when the trainer's last event, or a dead trainer's tail, has arrived."""
    # The first end event counts: the run's status has already followed it.
    ended = last if isinstance(last, TrainerEnded) and attempt.trainer_code is None else None
    if ended is not None:
        attempt.trainer_code = ended.reason.value
        attempt.trainer_message = ended.message.replace("\x00", "\ufffd")
    if attempt.state == AttemptState.ENDED.value:
        finalize_attempt(session, run, attempt, now=now)
    elif ended is not None:
        _await_report(session, run, ended.reason, now=now)


def _await_report(session: Session, run: Run, reason: ReasonCode, *, now: datetime) -> None:
    """Show that the trainer exits; the runner's end report completes the attempt."""
    running = run.status in (RunStatus.RUNNING.value, RunStatus.CANCELLING.value)
    if reason is ReasonCode.COMPLETED and running:
        move(session, run, RunStatus.FINALIZING, now=now)
    elif REASONS[reason].after is AfterEnd.PAUSE and run.status == RunStatus.RUNNING.value:
        move(session, run, RunStatus.PAUSING, now=now)
    else:
        exit_s = DEADLINES_S[RunStatus.FINALIZING] or 0.0
        run.deadline_at = now + timedelta(seconds=exit_s)
