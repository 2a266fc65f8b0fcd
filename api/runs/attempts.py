"""Attempts of a run: offered when a slot is free, claimed by a runner, ended for a reason.

Every function wants the run locked in the caller's transaction (`store.lock_run`, `leases.hold`).
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.ids import new_id
from api.runs import queue, slots, store
from api.runs.journal import SERVICE, Draft, append
from api.runs.settle import settle
from api.runs.status import WAITING, AttemptState, RunStatus
from api.runs.transitions import move
from api.tables import Attempt, Run
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import checkpoint_name, run_key
from trainer.contract.spec import RunSpec

TOKEN_PREFIX = "hca_"  # noqa: S105 (a prefix, not a secret)
TAIL_GRACE_S = 20.0
"""How long the last events of a dead attempt are waited for before its run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an attempt ended, as far as the one who says so knows."""

    reason: ReasonCode
    message: str
    actor: str = SERVICE
    exit_code: int | None = None
    final_trainer_seq: int | None = None
    """How many events the trainer wrote; null when nobody counted."""


def offer(session: Session, run: Run, *, now: datetime) -> Attempt | None:
    """Offer the run's next attempt if it waits and its turn has come; null while it must wait.

    The attempt goes on from the newest complete checkpoint, or from the one the spec names.
    """
    if RunStatus(run.status) not in WAITING:
        return None
    slots.lock(session, run.project_id)
    if queue.place_of(session, run, now=now).reason is not None:
        return None
    resume_from, from_step = _resume_point(session, run)
    run.attempt += 1
    attempt = Attempt(
        id=new_id("att"),
        run_id=run.id,
        number=run.attempt,
        state=AttemptState.OFFERED.value,
        resume_from=resume_from,
        from_step=from_step,
        offered_at=now,
        last_trainer_seq=0,
    )
    session.add(attempt)
    session.flush()
    data = {"attempt": run.attempt, "resume_from": resume_from, "from_step": from_step}
    append(session, run, [Draft(type="attempt.offered", at=now, attempt=run.attempt, data=data)])
    move(session, run, RunStatus.PROVISIONING, now=now)
    return attempt


def claim(
    session: Session, run: Run, attempt: Attempt, *, runner: tuple[str, str], now: datetime
) -> str:
    """Give the offered attempt to a runner (id, name) and return its new ingest token.

    The token is stored only as a hash: it cannot be given out twice.
    """
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    attempt.state = AttemptState.CLAIMED.value
    attempt.runner_id, name = runner
    attempt.token_hash = hash_token(token)
    attempt.claimed_at = attempt.last_held_at = now
    data = {"attempt": attempt.number, "runner": name}
    draft = Draft(
        type="attempt.claimed", at=now, actor=f"runner:{name}", attempt=attempt.number, data=data
    )
    append(session, run, [draft])
    move(session, run, RunStatus.STARTING, now=now, actor=f"runner:{name}")
    return token


def request_stop(attempt: Attempt, *, now: datetime, kill: bool = False) -> None:
    """Ask the attempt's runner, at its next heartbeat, to stop (checkpoint first) or to kill."""
    if attempt.stop_requested_at is None:
        attempt.stop_requested_at = now
    if kill and attempt.kill_requested_at is None:
        attempt.kill_requested_at = now


def end_attempt(session: Session, run: Run, attempt: Attempt, end: End, *, now: datetime) -> None:
    """Write down that the attempt is over, then let the run go on as soon as its events are in.

    Repeating it changes nothing. The run itself moves in `settle`.
    """
    if attempt.state == AttemptState.ENDED.value:
        return
    attempt.state = AttemptState.ENDED.value
    attempt.ended_at = now
    attempt.end_code = end.reason.value
    attempt.end_message = end.message
    attempt.exit_code = end.exit_code
    attempt.final_trainer_seq = end.final_trainer_seq
    data = {
        "attempt": attempt.number,
        "reason": end.reason.value,
        "message": end.message,
        "exit_code": end.exit_code,
    }
    draft = Draft(type="attempt.ended", at=now, actor=end.actor, attempt=attempt.number, data=data)
    append(session, run, [draft])
    if attempt.number != run.attempt:
        return
    run.deadline_at = now + timedelta(seconds=TAIL_GRACE_S)
    run.due_at = now
    settle(session, run, attempt, now=now)


def hash_token(token: str) -> str:
    """Return the SHA-256 under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def _resume_point(session: Session, run: Run) -> tuple[str | None, int]:
    """Return (blob key, step) of the checkpoint the next attempt goes on from."""
    own = store.newest_checkpoint(session, run.id)
    if own is not None:
        return run_key(run.id, own.path), own.step
    source = RunSpec.model_validate(run.spec).lineage.resumed_from
    if source is None:
        return None, 0
    found = store.find_checkpoint(
        session, run.project_id, source.run_id, step=source.step, attempt=source.attempt
    )
    # A checkpoint deleted since then still gets its name: the trainer reports it as unreadable.
    path = found.path if found else checkpoint_name(source.step, source.attempt)
    return run_key(source.run_id, path), source.step
