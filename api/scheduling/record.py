"""Ingest: a trainer's events become the run's events, its results and its status, at once.

The push route and the worker's relay both come through here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.runs import store
from api.runs.attempts import hash_token
from api.runs.derive import derive, to_draft
from api.runs.errors import AttemptSuperseded, UnknownToken, UnsupportedSchema
from api.runs.journal import Draft, append
from api.runs.prompts import changed_prompts
from api.runs.reasons import REASONS, AfterEnd
from api.runs.settle import settle
from api.runs.status import DEADLINES_S, AttemptState, RunStatus
from api.runs.transitions import move, set_deadline
from api.tables import Attempt, Run
from trainer.contract.events import (
    ACCEPTED_SCHEMAS,
    Event,
    IngestReply,
    PhaseStarted,
    PromptsRendered,
    StepCompleted,
    TrainerEnded,
    TrainerStarted,
)
from trainer.contract.reasons import ReasonCode


def record_push(
    session: Session, token: str, events: Sequence[Event], *, now: datetime
) -> tuple[Run, IngestReply]:
    """Record what a trainer sent with its token, unless its attempt is over.

    Raises UnknownToken, AttemptSuperseded, UnsupportedSchema; then nothing is recorded.
    """
    found = session.scalar(select(Attempt).where(Attempt.token_hash == hash_token(token)))
    if found is None:
        raise UnknownToken("The attempt token is not known.")
    run = store.lock_run(session, found.run_id)
    attempt = store.get_attempt(session, found.id)
    if attempt.state == AttemptState.ENDED.value:
        raise AttemptSuperseded(f"Attempt {attempt.number} of run {run.id} is over: stop.")
    return run, record(session, run, attempt, events, now=now)


def record(
    session: Session, run: Run, attempt: Attempt, events: Sequence[Event], *, now: datetime
) -> IngestReply:
    """Record the events that follow, without a gap, on what is already here; ignore the others.

    `run` is locked. The attempt may have ended (the relay brings a dead trainer's tail), but it
    must be the run's newest: raises AttemptSuperseded otherwise, and UnsupportedSchema for
    events of a version that is not accepted. The reply says where the sender goes on.
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
        _begin(session, run, attempt, now=now)
        _journal(session, run, attempt, fresh)
        derive(session, run, attempt.number, fresh)
        _follow_end(session, run, attempt, fresh[-1], now=now)
    return IngestReply(accepted=len(fresh), last_trainer_seq=attempt.last_trainer_seq)


def _contiguous(events: Sequence[Event], *, after: int) -> list[Event]:
    """Return the events numbered `after` + 1, + 2, … up to the first gap."""
    fresh: list[Event] = []
    for event in events:
        if event.trainer_seq == after + len(fresh) + 1:
            fresh.append(event)
    return fresh


def _begin(session: Session, run: Run, attempt: Attempt, *, now: datetime) -> None:
    """The first event of an attempt makes it, and its run, running; every event is a sign of life.

    The run's deadline is the attempt's own once it has ended, is stopping or has been told to.
    """
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


def _journal(session: Session, run: Run, attempt: Attempt, events: Sequence[Event]) -> None:
    threshold = float(run.spec["eval"]["pass_threshold"])
    drafts: list[Draft] = []
    for event in events:
        if isinstance(event, TrainerStarted):
            drafts.extend(_rewound(run, attempt, event))
        drafts.append(to_draft(event, attempt.number, pass_threshold=threshold))
        if isinstance(event, PromptsRendered):
            changed = changed_prompts(session, run, attempt.number, event)
            drafts.extend([changed] if changed else [])
        _progress(run, event)
    append(session, run, drafts)


def _rewound(run: Run, attempt: Attempt, event: TrainerStarted) -> list[Draft]:
    """Tell readers that steps they have seen are being done again, and set the progress back."""
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
    elif isinstance(event, PhaseStarted):
        run.progress_phase = event.phase
    elif isinstance(event, StepCompleted):
        run.progress_step = event.step
        run.progress_eta_s = event.eta_s


def _follow_end(
    session: Session, run: Run, attempt: Attempt, last: Event, *, now: datetime
) -> None:
    """Let the run go on when the trainer said its last word, or its awaited tail is in."""
    # Its first last word counts: the run's status has already followed that one.
    ended = last if isinstance(last, TrainerEnded) and attempt.trainer_code is None else None
    if ended is not None:
        attempt.trainer_code = ended.reason.value
        attempt.trainer_message = ended.message.replace("\x00", "\ufffd")
    if attempt.state == AttemptState.ENDED.value:
        settle(session, run, attempt, now=now)
    elif ended is not None:
        _await_report(session, run, ended.reason, now=now)


def _await_report(session: Session, run: Run, reason: ReasonCode, *, now: datetime) -> None:
    """Show that the trainer is leaving; the runner's report of its end completes it."""
    running = run.status in (RunStatus.RUNNING.value, RunStatus.CANCELLING.value)
    if reason is ReasonCode.COMPLETED and running:
        move(session, run, RunStatus.FINALIZING, now=now)
    elif REASONS[reason].after is AfterEnd.PAUSE and run.status == RunStatus.RUNNING.value:
        move(session, run, RunStatus.PAUSING, now=now)
    else:
        leaving_s = DEADLINES_S[RunStatus.FINALIZING] or 0.0
        run.deadline_at = now + timedelta(seconds=leaving_s)
