"""Attempts of a run: offered when a slot is free, claimed by a runner, ended for a reason.

Every function wants the run locked in the caller's transaction (`store.lock_run`, `leases.hold`).
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import update
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.clusters.asking import Never, may_ask
from api.ids import new_id
from api.runs import queue, slots, store
from api.runs.errors import SpecOutdated
from api.runs.journal import SERVICE, Draft, append
from api.runs.lanes import Lane, lane_of
from api.runs.reasons import OVERDUE, REASONS
from api.runs.settle import settle
from api.runs.status import WAITING, AttemptState, RunStatus
from api.runs.stored_spec import spec_of
from api.runs.transitions import move
from api.tables import Attempt, Cluster, Run
from trainer.contract.clusters.spec import SkyPilotSpec
from trainer.contract.launch import Action, AttemptEnd
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import checkpoint_name, run_key

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

    A run on a cluster of its own fails when it may not ask for one any more, and any run whose
    stored spec this version refuses.

    The attempt goes on from the newest complete checkpoint, or from the one the spec names.
    """
    if RunStatus(run.status) not in WAITING:
        return None
    if _is_outdated(session, run, now=now):
        return None
    lane = lane_of(run)
    slots.lock(session, run.project_id)
    if lane is Lane.CLUSTER and _gives_up(session, run, now=now):
        return None
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
    if lane is Lane.CLUSTER:
        sky = SkyPilotSpec.model_validate(run.spec["backend"]["skypilot"])
        clusters.create(session, run, attempt, sky, now=now)
    move(session, run, RunStatus.PROVISIONING, now=now)
    return attempt


def _is_outdated(session: Session, run: Run, *, now: datetime) -> bool:
    """Fail a run that nobody could start any more, with a sentence."""
    try:
        spec_of(run)
    except SpecOutdated as error:
        reason = (ReasonCode.SPEC_REJECTED, str(error))
        move(session, run, RunStatus.FAILED, now=now, reason=reason)
        return True
    return False


def _gives_up(session: Session, run: Run, *, now: datetime) -> bool:
    answer = may_ask(session, run, now=now)
    if not isinstance(answer, Never):
        return False
    move(session, run, RunStatus.FAILED, now=now, reason=(answer.reason, answer.message))
    return True


def claim(
    session: Session, run: Run, attempt: Attempt, *, runner: tuple[str, str], now: datetime
) -> str:
    """Give the offered attempt to a runner (id, name) and return its new ingest token.

    The token is stored only as a hash: it cannot be given out twice.
    """
    attempt.runner_id, name = runner
    actor = f"runner:{name}"
    return _claim(session, run, attempt, {"runner": name}, actor=actor, now=now)


def claim_for_cluster(
    session: Session, run: Run, attempt: Attempt, *, name: str, now: datetime
) -> str:
    """Give the offered attempt to the cluster of that name and return its new ingest token."""
    actor = f"cluster:{name}"
    return _claim(session, run, attempt, {"cluster": name}, actor=actor, now=now)


def renew_token(attempt: Attempt) -> str:
    """Return a new ingest token for a claimed attempt; the one before is dead."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    attempt.token_hash = hash_token(token)
    return token


def _claim(
    session: Session,
    run: Run,
    attempt: Attempt,
    holder: dict[str, object],
    *,
    actor: str,
    now: datetime,
) -> str:
    attempt.state = AttemptState.CLAIMED.value
    attempt.claimed_at = attempt.last_held_at = now
    token = renew_token(attempt)
    data = {"attempt": attempt.number} | holder
    draft = Draft(type="attempt.claimed", at=now, actor=actor, attempt=attempt.number, data=data)
    append(session, run, [draft])
    move(session, run, RunStatus.STARTING, now=now, actor=actor)
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
    _wake_cluster(session, attempt, now=now)
    if attempt.number != run.attempt:
        return
    run.deadline_at = now + timedelta(seconds=TAIL_GRACE_S)
    run.due_at = now
    settle(session, run, attempt, now=now)


def _wake_cluster(session: Session, attempt: Attempt, *, now: datetime) -> None:
    """Let what was rented for the attempt be given back at once."""
    mine = update(Cluster).where(Cluster.attempt_id == attempt.id, Cluster.due_at.is_not(None))
    session.execute(mine.values(due_at=now))


def wanted_of(attempt: Attempt) -> Action | None:
    """Return what whoever holds the attempt is to do with its trainer; null: let it train."""
    if attempt.kill_requested_at is not None:
        return "kill"
    return "stop" if attempt.stop_requested_at is not None else None


def report_end(
    session: Session, run: Run, attempt: Attempt, body: AttemptEnd, *, actor: str, now: datetime
) -> None:
    """Take the word of whoever held the attempt that its trainer is gone.

    Repeating it changes nothing. A trainer that was killed because its run's status lasted too
    long ended for that reason.
    """
    killed_by_us = attempt.kill_requested_at is not None and attempt.trainer_code is None
    reason = OVERDUE.get(RunStatus(run.status), body.reason) if killed_by_us else body.reason
    end = End(
        reason=reason,
        message=REASONS[reason].wording if killed_by_us else body.message.replace("\0", "\ufffd"),
        actor=actor,
        exit_code=body.exit_code,
        final_trainer_seq=body.last_trainer_seq,
    )
    end_attempt(session, run, attempt, end, now=now)


def hash_token(token: str) -> str:
    """Return the SHA-256 under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def _resume_point(session: Session, run: Run) -> tuple[str | None, int]:
    """Return (blob key, step) of the checkpoint the next attempt goes on from."""
    own = store.newest_checkpoint(session, run.id)
    if own is not None:
        return run_key(run.id, own.path), own.step
    source = spec_of(run).lineage.resumed_from
    if source is None:
        return None, 0
    found = store.find_checkpoint(
        session, run.project_id, source.run_id, step=source.step, attempt=source.attempt
    )
    # A checkpoint deleted since then still gets its name: the trainer reports it as unreadable.
    path = found.path if found else checkpoint_name(source.step, source.attempt)
    return run_key(source.run_id, path), source.step
